package suites

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestReadEvents(t *testing.T) {
	events := `{"Action":"start"}
{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"=== RUN TestA\n"}
{"Action":"run","Test":"TestA/one"}
{"Action":"pass","Test":"TestA/one"}
{"Action":"skip","Test":"TestA"}
{"Action":"run","Test":"TestB"}
{"Action":"output","Output":"panic: no\n"}
{"Action":"fail"}
`
	var log strings.Builder
	got := outcomes{}
	if err := got.readEvents(strings.NewReader(events), &log); err != nil {
		t.Fatal(err)
	}
	want := outcomes{"TestA": skipped, "TestA/one": passed, "TestB": unfinished, process: failed}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if log.String() != "=== RUN TestA\npanic: no\n" {
		t.Errorf("the log is %q", log.String())
	}
}

func TestReadSpecs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "specs.json")
	report := `[{"SpecReports":[
{"ContainerHierarchyTexts":null,"LeafNodeType":"BeforeSuite","State":"passed"},
{"ContainerHierarchyTexts":["a","b"],"LeafNodeType":"It","LeafNodeText":"c","State":"passed"},
{"ContainerHierarchyTexts":["a","b"],"LeafNodeType":"It","LeafNodeText":"c","State":"timedout"},
{"ContainerHierarchyTexts":["a","b"],"LeafNodeType":"It","LeafNodeText":"skips itself","State":"skipped","NumAttempts":1},
{"ContainerHierarchyTexts":["a","b"],"LeafNodeType":"It","LeafNodeText":"not selected","State":"skipped"},
{"ContainerHierarchyTexts":["a"],"LeafNodeType":"It","LeafNodeText":"d","State":"pending"}]}]`
	if err := os.WriteFile(file, []byte(report), 0o666); err != nil {
		t.Fatal(err)
	}
	got := outcomes{}
	if err := got.readSpecs(file); err != nil {
		t.Fatal(err)
	}
	want := outcomes{"spec: BeforeSuite": passed, "spec: a b c": passed, "spec: a b c #2": failed,
		"spec: a b skips itself": skipped, "spec: a d": skipped}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestReplace(t *testing.T) {
	r := &result{
		Commit: "a", Seconds: map[string]float64{upstream: 1, keepwatch: 2},
		Outcomes: map[string]outcomes{
			upstream:  {"A": failed, "A/one": failed, "A/old": failed, "B": passed, "spec: c/d": passed, "spec: c/e": failed},
			keepwatch: {"A": passed, "A/one": passed, "B": passed, "spec: c/d": failed, "spec: c/e": failed},
		},
	}
	r.replace(&result{
		Commit: "b", Seconds: map[string]float64{upstream: 10, keepwatch: 20},
		Outcomes: map[string]outcomes{
			upstream:  {"A": passed, "A/one": passed, "spec: c/d": passed},
			keepwatch: {"A": passed, "A/one": failed, "spec: c/d": passed},
		},
		Repeated: map[string]map[string][]outcome{keepwatch: {"A/one": {passed, passed}}},
	})
	want := map[string]outcomes{
		upstream:  {"A": passed, "A/one": passed, "B": passed, "spec: c/d": passed, "spec: c/e": failed},
		keepwatch: {"A": passed, "A/one": failed, "B": passed, "spec: c/d": passed, "spec: c/e": failed},
	}
	for _, mode := range modes {
		if !maps.Equal(r.Outcomes[mode], want[mode]) {
			t.Errorf("%s: %v, want %v", mode, r.Outcomes[mode], want[mode])
		}
	}
	if got := r.Repeated[keepwatch]["A/one"]; !slices.Equal(got, []outcome{passed, passed}) || r.Commit != "b" ||
		r.Seconds[keepwatch] != 22 {
		t.Errorf("repeated %v at %s, %v seconds", got, r.Commit, r.Seconds)
	}
}

func TestDifferences(t *testing.T) {
	r := &result{
		Outcomes: map[string]outcomes{
			upstream:  {"same": failed, "flake": failed, "fault": passed, "gone": passed, process: passed},
			keepwatch: {"same": failed, "flake": passed, "fault": failed, "new": skipped, process: failed},
		},
		Repeated: map[string]map[string][]outcome{
			upstream:  {"flake": {passed, failed}, "fault": {passed, passed}},
			keepwatch: {"flake": {failed, passed}, "fault": {passed, failed}},
		},
	}
	if got, want := r.differences(), []string{process, "fault", "flake", "gone", "new"}; !slices.Equal(got, want) {
		t.Errorf("differences %q, want %q", got, want)
	}
	if got, want := r.unexplained(), []string{process, "fault", "gone", "new"}; !slices.Equal(got, want) {
		t.Errorf("unexplained %q, want %q", got, want)
	}
	var table strings.Builder
	writeTable(&table, []*result{r})
	if want := "|  | 2 | 1 | 1 | 0 | 5 | 4 |\n"; !strings.HasSuffix(table.String(), want) {
		t.Errorf("%s, want %s", table.String(), want)
	}
}

func TestSelections(t *testing.T) {
	got := selections([]string{process, "TestA", "TestA/one", "spec: a (b) c"})
	want := []selection{{tests: "^TestA$"}, {specs: `a \(b\) c$`}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestPatchTwice: a patch that does not fit is an error.
func TestPatchTwice(t *testing.T) {
	p := patch{file: "a.go", edits: []edit{before("x()", "y()")}}
	if got, err := p.apply("{\n\tx()\n}"); err != nil || got != "{\n\ty()\n\tx()\n}" {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"", "\tx()\n\tx()\n"} {
		if _, err := p.apply(text); err == nil {
			t.Errorf("the patch fits %q", text)
		}
	}
}
