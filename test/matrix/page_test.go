package matrix

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

// TestPageIsUpToDate compares docs/matrix.md and its figures with what the results give.
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
		{Client: "kopf", Version: "1.2.3", View: clients.Events, Plan: "outage", Upstream: KubeAPIServer,
			UpstreamVersion: "v1.36.3", Outcome: Died, ExitCode: 3, Writes: 200, Counts: Counts{LostIntermediate: 7,
				LostFinal: 4}},
		{Client: "kopf", Version: "1.2.3", View: clients.Events, Plan: "none", Upstream: KubeAPIServer,
			UpstreamVersion: "v1.36.3", Outcome: Right, Recovery: 1.25, Writes: 200, Lists: 9},
		{Client: "kopf", Version: "1.2.3", View: clients.Events, Plan: "gone", Upstream: KubeAPIServer,
			UpstreamVersion: "v1.36.3", Outcome: Right, Counts: Counts{LostDeletes: 2}},
		{Client: "keepwatch watch", View: clients.Events, Plan: "gone", Upstream: KubeAPIServer, UpstreamVersion: "v1.36.3",
			Outcome: Right},
	})
	page := string(files["matrix.md"])
	at := 0
	for _, want := range []string{
		"| column | client | kube-apiserver | serve |\n|---|---|---|---|\n| `wait` | kubectl wait | | 0, 0, 1 |\n| `kopf` | kopf 1.2.3 | 1, 1, 1 | |\n",
		"## kube-apiserver v1.36.3\n",
		"| plan | kopf | kw-w |\n|---|---|---|\n| `none` | ✓ | |\n| `cuts` | | |\n| `outage` | ✗ | |\n",
		"| `gone`° | ~ | ✓ |\n", "| kopf | 2 in 1 plan | 0 | 9 (`none`) | 0 |\n",
		"## serve\n", "| `none` | ✗ |\n", "| kubectl wait | – | – | 0 | 0 |\n",
		"## Plans\n", "| `silent-watch` | ", "[kubernetes#97294](https://github.com/kubernetes/kubernetes/issues/97294) |\n",
	} {
		i := strings.Index(page[at:], want)
		if i < 0 {
			t.Fatalf("the page lacks %q behind byte %d:\n%s", want, at, page)
		}
		at += i
	}
	for name, want := range map[string][]string{
		"matrix-kube-apiserver.svg": {`>kopf</text>`, `>9</text>`, colors[complete], colors[incomplete], colors[failed]},
		"matrix-serve.svg":          {`>kubectl wait</text>`, colors[failed]},
	} {
		for _, part := range want {
			if !strings.Contains(string(files[name]), part) {
				t.Errorf("%s lacks %s:\n%s", name, part, files[name])
			}
		}
	}
}

// TestMark has each reason for each mark.
func TestMark(t *testing.T) {
	for _, test := range []struct {
		name string
		r    Result
		want string
	}{
		{"complete", Result{Outcome: Right, View: clients.Events}, complete},
		{"wrong", Result{Outcome: Wrong, View: clients.States}, failed},
		{"hung", Result{Outcome: Hung, View: clients.Condition}, failed},
		{"died", Result{Outcome: Died, View: clients.Events}, failed},
		{"a lost deletion", Result{Outcome: Right, View: clients.Events, Hidden: true, Counts: Counts{LostDeletes: 1}},
			incomplete},
		{"a repeated event", Result{Outcome: Right, View: clients.Events, Counts: Counts{Duplicates: 1}}, incomplete},
		{"a broken promise", Result{Outcome: Right, View: clients.Events, Violations: 1}, incomplete},
		{"a lost state", Result{Outcome: Right, View: clients.Events, Counts: Counts{LostIntermediate: 1}}, incomplete},
		{"a hidden state", Result{Outcome: Right, View: clients.Events, Hidden: true, Counts: Counts{LostIntermediate: 1}},
			complete},
		{"a reconciler", Result{Outcome: Right, View: clients.States, Counts: Counts{LostIntermediate: 1, LostDeletes: 1}},
			complete},
	} {
		if got := test.r.mark(); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
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

// TestVersions finds each client's pinned version, and a short name of its own.
func TestVersions(t *testing.T) {
	short := map[string]bool{"": true}
	for _, p := range clients.Programs() {
		if short[p.Short] {
			t.Errorf("%s has the short name %q, as another one", p.Name, p.Short)
		}
		short[p.Short] = true
		version, err := p.Version()
		if err != nil {
			t.Error(err)
		}
		if version == "" && !p.Ours && !strings.HasPrefix(p.Name, "fabric8 ") {
			t.Errorf("%s has no version", p.Name)
		}
	}
}
