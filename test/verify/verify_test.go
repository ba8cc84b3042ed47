package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestResume verifies a small repository: a part that passed runs again only when a source changes.
func TestResume(t *testing.T) {
	root := repository(t)
	selected := []part{{"a", "first", "echo first $SEED >> runs"},
		{"a", "second", "echo second >> runs; test -e repaired"}}
	verifyRuns := func(wantError bool, want ...string) {
		t.Helper()
		os.Remove(filepath.Join(root, "runs"))
		if err := verify(t.Context(), root, selected, "7", false); (err != nil) != wantError {
			t.Errorf("verify: %v", err)
		}
		text, _ := os.ReadFile(filepath.Join(root, "runs"))
		if got := strings.Fields(strings.ReplaceAll(string(text), " ", "-")); strings.Join(got, " ") != strings.Join(want,
			" ") {
			t.Errorf("it ran %v, want %v", got, want)
		}
	}
	verifyRuns(true, "first-7", "second")
	verifyRuns(true, "second")
	write(t, root, "repaired", "")
	verifyRuns(false, "second")
	verifyRuns(false)

	write(t, root, "docs/verification.md", page(t, root)+"\nA sentence.\n")
	commit(t, root)
	verifyRuns(false)
	write(t, root, "source.go", "package changed")
	verifyRuns(false, "first-7", "second")

	if text := page(t, root); !strings.Contains(text, "| a-second | passed |") || !strings.HasPrefix(text, "head\n") ||
		!strings.HasSuffix(text, "A sentence.\n") {
		t.Errorf("the page is\n%s", text)
	}
}

func TestSkippedTestsHaveTheirReason(t *testing.T) {
	for _, log := range []string{
		"=== SKIP: stream/sink/kafka TestStorm (0.00s)\n    kafka_test.go:12: no java: Kafka is NOT tested\n",
		"    --- SKIP: TestStorm (0.00s)\n        kafka_test.go:12: no java: Kafka is NOT tested\n--- PASS: TestOther (0.00s)\n",
	} {
		got, err := skipped(strings.NewReader(log))
		if err != nil || len(got) != 1 || got[0] != "TestStorm: kafka_test.go:12: no java: Kafka is NOT tested" {
			t.Errorf("skipped(%q) = %q, %v", log, got, err)
		}
	}
}

func TestParts(t *testing.T) {
	ids := map[string]bool{}
	for _, p := range parts {
		if ids[p.id()] {
			t.Errorf("two parts are named %s", p.id())
		}
		ids[p.id()] = true
	}
	if _, err := selectParts("no-area"); err == nil || !strings.Contains(err.Error(), "proxy, ") {
		t.Errorf("selectParts of an unknown area: %v", err)
	}
	if selected, err := selectParts("proxy-personal"); err != nil || len(selected) != 1 || selected[0].name != "personal" {
		t.Errorf("selectParts of a part: %v, %v", selected, err)
	}
}

// The workflow that verifies on a schedule runs each part: a job has 6 hours at most.
func TestWorkflowRunsEachPart(t *testing.T) {
	text, err := os.ReadFile("../../.github/workflows/verify.yml")
	if err != nil {
		t.Fatal(err)
	}
	type step struct{ ID, Run string }
	var workflow struct {
		Jobs struct {
			Parts struct {
				Outputs map[string]string
				Steps   []step
			}
			Part struct {
				Strategy struct{ Matrix map[string]string }
				Steps    []step
			}
		}
	}
	if err := yaml.Unmarshal(text, &workflow); err != nil {
		t.Fatal(err)
	}
	jobs, list := workflow.Jobs, step{"list", `echo "names=$(cd test && go run ./verify -names)" >> "$GITHUB_OUTPUT"`}
	if jobs.Parts.Outputs["names"] != "${{ steps.list.outputs.names }}" || !slices.Contains(jobs.Parts.Steps, list) ||
		jobs.Part.Strategy.Matrix["part"] != "${{ fromJSON(needs.parts.outputs.names) }}" ||
		!slices.Contains(jobs.Part.Steps, step{Run: "make verify AREA=${{ matrix.part }}"}) {
		t.Errorf("the workflow does not run what verify lists: %+v", jobs)
	}
	if all := namesOf(parts); len(all) > 256 || !slices.Contains(all, "proxy-personal") {
		t.Errorf("a matrix of %d jobs: %v", len(all), all)
	}
}

// repository returns the folder of a git repository with one commit.
func repository(t *testing.T) string {
	root := t.TempDir()
	write(t, root, "source.go", "package first")
	write(t, root, ".gitignore", "runs\nrepaired\nbin\n")
	write(t, root, "docs/verification.md", "head\n"+tableBegin+tableEnd)
	runGit(t, root, "init", "--quiet")
	commit(t, root)
	return root
}

func commit(t *testing.T, root string) {
	t.Helper()
	runGit(t, root, "add", "--all")
	runGit(t, root, "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "--quiet", "--message",
		"commit")
}

func runGit(t *testing.T, root string, args ...string) {
	t.Helper()
	if _, err := git(root, nil, args...); err != nil {
		t.Fatal(err)
	}
}

func page(t *testing.T, root string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/verification.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	file := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
