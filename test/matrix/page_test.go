package matrix

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

// TestPageIsUpToDate compares docs/matrix.md and its plots with what the results give.
func TestPageIsUpToDate(t *testing.T) {
	results, err := LoadResults("results")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if clientIndex(r) < 0 || planIndex(r) < 0 {
			t.Errorf("the cell %s/%s does not exist any more", r.Client, r.Plan)
		}
	}
	for name, want := range Page(results) {
		got, err := os.ReadFile(filepath.Join("../../docs", name))
		if err != nil || string(got) != string(want) {
			t.Errorf("docs/%s is not what the results give: run make matrix-page (%v)", name, err)
		}
	}
}

// TestPage makes a page of results of each outcome and view.
func TestPage(t *testing.T) {
	files := Page([]Result{
		{Client: "kubectl wait", View: clients.Condition, Plan: "none", Upstream: Serve, Outcome: Hung},
		{Client: "kopf", Version: "1.2.3", View: clients.Events, Plan: "outage", Upstream: KubeAPIServer, UpstreamVersion: "v1.36.3", Outcome: Died, ExitCode: 3, Writes: 200, Counts: Counts{LostIntermediate: 7, LostFinal: 4}},
		{Client: "kopf", Version: "1.2.3", View: clients.Events, Plan: "none", Upstream: KubeAPIServer, UpstreamVersion: "v1.36.3", Outcome: Right, Recovery: 1.25, Writes: 200, Lists: 9},
	})
	page := string(files["matrix.md"])
	at := 0
	for _, want := range []string{
		"| client | kube-apiserver | serve |\n|---|---|---|\n| kubectl wait | | 0 of 1 |\n| kopf | 1 of 2 | |\n",
		"## Through kube-apiserver v1.36.3\n", "### kopf 1.2.3\n",
		"| none | right | 1.2 | 0 | 0/200 | 0 | 0 | 0 | 0 | 9 |", "| outage | died, exit code 3 | – | 4 | 7/200 |",
		"## Through serve\n", "| none | hung | – | – | – | – | – | – | 0 | 0 |",
	} {
		i := strings.Index(page[at:], want)
		if i < 0 {
			t.Fatalf("the page lacks %q behind byte %d:\n%s", want, at, page)
		}
		at += i
	}
	for name, want := range map[string][]string{
		"matrix-kube-apiserver-lists.svg":    {`>kopf</text>`, `>9</text>`, `r="13.0"`},
		"matrix-kube-apiserver-recovery.svg": {`>1.2</text>`, `<path d="M`},
		"matrix-serve-lists.svg":             {`>kubectl wait</text>`},
	} {
		for _, part := range want {
			if !strings.Contains(string(files[name]), part) {
				t.Errorf("%s lacks %s:\n%s", name, part, files[name])
			}
		}
	}
}

// TestSave replaces the result of the same cell, and keeps the others.
func TestSave(t *testing.T) {
	dir := t.TempDir()
	for _, r := range []Result{
		{Client: "kopf", Plan: "none", Upstream: Serve, Lists: 1},
		{Client: "kopf", Plan: "outage", Upstream: Serve, Lists: 2},
		{Client: "kopf", Plan: "none", Upstream: KubeAPIServer, Lists: 3},
		{Client: "kopf", Plan: "none", Upstream: Serve, Lists: 4},
	} {
		if err := r.Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	all, err := LoadResults(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for _, r := range all {
		got = got*10 + r.Lists
	}
	if got != 342 {
		t.Errorf("the files have %+v", all)
	}
}

// TestVersions finds each client's pinned version.
func TestVersions(t *testing.T) {
	for _, p := range clients.Programs() {
		version, err := p.Version()
		if err != nil {
			t.Error(err)
		}
		if version == "" && !p.Ours && !strings.HasPrefix(p.Name, "fabric8 ") {
			t.Errorf("%s has no version", p.Name)
		}
	}
}
