package servers

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"testing"

	"github.com/keepwatch/keepwatch/server/judge/conform"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	record = flag.String("servers.record", "",
		"judge the servers, and write the verdicts into this folder; empty: TestServers is skipped")
	only   = flag.String("servers.only", "", "only the servers whose names match this regular expression")
	writes = flag.Int("servers.writes", 1000, "random writes of each resource")
)

func TestMain(m *testing.M) { peer.Main(m) }

// TestServers judges all servers. What a server does is no failure.
func TestServers(t *testing.T) {
	if *record == "" {
		t.Skip("see make servers")
	}
	selected, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range Servers() {
		if !selected.MatchString(s.Name) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			server := s.start(t)
			if err := server.compact(t.Context()); err != nil { // continue tokens can expire then
				t.Fatal(err)
			}
			report, err := conform.Run(t.Context(), server.config, conform.Options{
				Watchers: 100, Writes: *writes, Disturb: server.restart, Progress: func(line string) { t.Log(line) },
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := resultOf(s, report, *writes).Save(*record); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestPage requires that docs/servers.md is that of the results.
func TestPage(t *testing.T) {
	results, err := LoadResults("results")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/servers.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, Page(results)) {
		t.Error("docs/servers.md is not that of test/servers/results: make servers-page")
	}
}
