package postgres_test

import (
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/sinks/postgres"
	"github.com/keepwatch/keepwatch/sinks/testonly/pgtest"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// testEventDashboard runs the queries of the dashboard of Events.
func testEventDashboard(t *testing.T, server *pgtest.Server) {
	s := postgres.New(server.URL("archive"), postgres.Options{})
	if _, err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	const in = `SET search_path = archive; SET timezone = 'UTC'; `
	server.SQL(in + strings.Replace(sinktest.EventTables, "TABLE_OF_STATES", "states", 1))
	const day = ` BETWEEN '2026-11-29T00:00:00Z' AND '2026-11-30T00:00:00Z'`
	queries := sinktest.EventDashboard(t, "keepwatch-events-postgres.json", "$__timeFilter(seen_from)", "seen_from"+day,
		"$__timeFilter(seen)", "seen"+day)
	for title, query := range queries {
		var lines []string
		for line := range strings.Lines(server.SQL(in + `COPY (` + query + `) TO STDOUT`)) {
			line = strings.TrimSuffix(line, "\n")
			if strings.Contains(line, "\t") { // the first column is the time
				if first, rest, _ := strings.Cut(line, "\t"); strings.HasPrefix(first, "2026-11-29 02:1") {
					line = rest
				}
			}
			if line != "SET" {
				lines = append(lines, strings.ReplaceAll(line, "\t", " "))
			}
		}
		if got := strings.Join(lines, "\n"); got != sinktest.EventPanels[title] {
			t.Errorf("%s: %q, want %q\n%s", title, got, sinktest.EventPanels[title], query)
		}
	}
}
