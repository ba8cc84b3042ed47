package figures

import (
	"errors"
	"flag"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the tables of the documentation")

// TestPages checks that each table of the documentation is that of its run, and that each run has a table.
func TestPages(t *testing.T) {
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, p := range places {
		used[p.part+".json"] = true
		run, err := load(filepath.Join(dir, results), p.part)
		if errors.Is(err, fs.ErrNotExist) && p.byHand {
			isWritten(t, dir, p, func(text string) (string, error) {
				_, err := p.write(text, &Run{})
				return text, err
			})
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		isWritten(t, dir, p, func(text string) (string, error) { return p.write(text, run) })
	}
	files, err := os.ReadDir(filepath.Join(dir, results))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, file := range files {
		if !used[file.Name()] {
			t.Errorf("%s/%s is in no table", results, file.Name())
		}
	}
}

// TestGoals checks that the table of goals has the figures of the tables that it shows, which are written before it.
func TestGoals(t *testing.T) {
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	lines, err := goalTable(dir, million)
	if err != nil {
		t.Fatal(err)
	}
	p := place{page: performance, name: "goals"}
	isWritten(t, dir, p, func(text string) (string, error) { return p.replace(text, lines) })
}

func TestGoalTable(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.md"), []byte(`# A

| what | x | y |
|---|---|---|
| one | 1× | 2× |

behind

| what | n | x | y |
|---|---|---|---|
| one | 1 | 4 → 2, **0.5×** | – |
| one | 2 | 3 s | – |
`), 0o644); err != nil {
		t.Fatal(err)
	}
	at := page{"a.md", "behind", "[a](a.md)"}
	got, err := goalTable(dir, []goal{{"row", "fast", []shown{
		{"first", at, "one", "x", 0.5}, {"", at, "one", "x", 0.4}, {"second", at, "one | 2", "x", 0}}, "why"}})
	if want := `| row | goal | figures | where | reached, or what holds it |
|---|---|---|---|---|
| row | fast | first 0.5×; **0.5×**; second 3 s | [a](a.md) | why |
`; err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
	for name, s := range map[string]shown{
		"no page": {at: page{file: "b.md"}}, "no place": {at: page{"a.md", "nowhere", ""}},
		"no row": {at: at, row: "two", column: "x"}, "no column": {at: at, row: "one", column: "z"},
		"no ratio": {at: at, row: "one | 2", column: "x", most: 1},
	} {
		if got, err := goalTable(dir, []goal{{row: name, shown: []shown{s}}}); err == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// isWritten checks that a page has the table that write writes into it, or writes it.
func isWritten(t *testing.T, dir string, p place, write func(text string) (string, error)) {
	t.Helper()
	file := filepath.Join(dir, p.page)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	written, err := write(string(text))
	switch {
	case err != nil:
		t.Error(err)
	case *update:
		if err := os.WriteFile(file, []byte(written), 0o644); err != nil {
			t.Fatal(err)
		}
	case written != string(text):
		t.Errorf("%s: the table %s is not that of its run: make figures", p.page, p.name)
	}
}

// TestPackagesPage checks that the table of packages is that of the trials on disk.
func TestPackagesPage(t *testing.T) {
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	trials, err := os.ReadFile(filepath.Join(dir, packageTrials))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := packageTable(string(trials))
	if err != nil {
		t.Fatal(err)
	}
	p := place{page: "docs/verification.md", name: "packages"}
	isWritten(t, dir, p, func(text string) (string, error) { return p.replace(text, lines) })
}

func TestPackageTable(t *testing.T) {
	got, err := packageTable(`stress	github.com/keepwatch/keepwatch/store	2026-11-29	abc	19	20	
mutants	github.com/keepwatch/keepwatch/check	2026-11-29	abc	45	50	7
stress	github.com/keepwatch/keepwatch/store	2026-11-30	def	20	20	
mutants	github.com/keepwatch/keepwatch/store	2026-11-30	def	49	50	7
`)
	if err != nil || got != `| package | runs that passed | when | mutants noticed | when |
|---|---|---|---|---|
| `+"`check`"+` |  |  | 45 of 50 | 2026-11-29, abc |
| `+"`store`"+` | 20 of 20 | 2026-11-30, def | 49 of 50 | 2026-11-30, def |
` {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := packageTable("stress\tx\n"); err == nil || !strings.Contains(err.Error(), ":1 is no trial") {
		t.Errorf("half a line: %v", err)
	}
}

func example() *Run {
	r := &Run{Part: "example", Date: time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC), Commit: "abc", Command: "make example",
		Seed: "7", Machine: "a machine", Peers: []string{"one", "two"}, Failed: []string{"a step"}}
	f := r.Of("A", "time", Seconds)
	for round, values := range [][3]float64{{1, 10, 2}, {8, 20, 2}, {6, 40, 2}} {
		f.Set(Ours, round, values[0])
		f.Set("one", round, values[1])
		f.Set("two", round, values[2])
	}
	f.Goal, f.Missed = "≤ 0.1×", true
	r.Of("A", "memory", Bytes).Set("one", 0, 2e6)
	r.Of("B", "time", Seconds).Set(Ours, 0, 0.0000123)
	growth := r.Of("C", "growth", Exponent)
	growth.Set(Ours, 0, 0.5)
	growth.Set("one", 0, 1)
	lost := r.Of("B", "lost", Losses)
	lost.Set(Ours, 0, 3)
	lost.Set(Ours, 1, 0)
	lost.Set("one", 1, 0)
	failed := r.Of("D", "time", Seconds)
	failed.Set(Ours, 0, 1)
	failed.Set(Ours, 1, 1)
	failed.Set("one", 0, 2)
	failed.Set("one", 1, math.NaN())
	return r
}

func TestTables(t *testing.T) {
	for name, c := range map[string]struct {
		table
		want string
	}{
		"side by side": {sideBySide("what", "measure"),
			`| what | measure | keepwatch | one | keepwatch / one | two | keepwatch / two | target |
|---|---|---|---|---|---|---|---|
| A | time | 6.00 s | 20.00 s | **0.15×** | 2.00 s | 3× | ≤ 0.1× |
| A | memory | – | 2 MB | – | – | – |  |
| B | time | 12.3 µs | – | – | – | – |  |
| C | growth | 0.50 | 1.00 | 0.5× | – | – |  |
| B | lost | 3 | 0 | – | – | – |  |
| D | time | 1.00 s | – | – | – | – |  |
`},
		"some rows": {only(func(row string) bool { return row == "C" }, sideBySide("what", "measure")),
			`| what | measure | keepwatch | one | keepwatch / one | two | keepwatch / two |
|---|---|---|---|---|---|---|
| C | growth | 0.50 | 1.00 | 0.5× | – | – |
`},
		"without goals": {byRow("what", func(row string) bool { return row == "C" }, column{"of one", "growth", "one"}),
			`| what | of one |
|---|---|
| C | 1.00 → 0.50 |
`},
		"by row": {byRow("what", func(row string) bool { return row == "A" }, column{"time", "time", "one"},
			column{"of two", "time", "two"}, column{"none", "none", "one"}), `| what | time | of two | none | target |
|---|---|---|---|---|
| A | 20.00 s → 6.00 s, **0.15×** | 2.00 s → 6.00 s, **3×** |  | time ≤ 0.1× |
`},
		"ours alone": {byRow("what", func(row string) bool { return row != "C" }, column{"time", "time", ""}),
			`| what | time | target |
|---|---|---|
| A | **6.00 s** | time ≤ 0.1× |
| B | 12.3 µs |  |
| D | 1.00 s |  |
`},
	} {
		if got := c.table(example()); got != c.want {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

// A run that is stored and loaded has the same table, and a page keeps what is not the table.
func TestStoredRunHasTheSameTable(t *testing.T) {
	dir, run := t.TempDir(), example()
	if err := run.save(dir); err != nil {
		t.Fatal(err)
	}
	loaded, err := load(dir, "example")
	if err != nil {
		t.Fatal(err)
	}
	p := place{"page.md", "example", "example", false, sideBySide("what", "measure")}
	begin, end := p.markers()
	got, err := p.write("head\n"+begin+"an old table\n"+end+"tail\n", loaded)
	want := "head\n" + begin + p.table(run) +
		"\n2026-11-29, commit abc, a machine, seed 7: `make example`.\nFailed: a step.\n" + end + "tail\n"
	if err != nil || got != want {
		t.Errorf("%v, the page is\n%s", err, got)
	}
	if again, err := p.write(got, loaded); err != nil || again != got {
		t.Errorf("%v, written twice the page is\n%s", err, again)
	}
	if _, err := p.write("head\n"+begin, loaded); err == nil || !strings.Contains(err.Error(), "no place") {
		t.Errorf("a page without the end marker: %v", err)
	}
}

// Rows that are measured in several runs are kept until they are measured again, each with its own date and commit.
func TestRowsOfSeveralRuns(t *testing.T) {
	dir := t.TempDir()
	for _, r := range []struct {
		day     int
		commit  string
		measure string
		rows    []string
	}{
		{1, "abc", "time", []string{"b, 5,000 objects", "a, 50,000 objects", "a, 5,000 objects"}},
		{2, "def", "memory", []string{"a, 50,000 objects", "a, 1,000,000 objects"}},
	} {
		run := &Run{Part: "rows", Date: time.Date(2026, 11, r.day, 0, 0, 0, 0, time.UTC), Commit: r.commit}
		for _, row := range r.rows {
			run.Of(row, r.measure, Count).Set(Ours, 0, float64(r.day))
			if err := run.saveRows(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	all, err := load(dir, "rows")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := byRow("", named(""), column{"time", "time", ""}, column{"memory", "memory", ""})(all), `|  | time | memory | measured |
|---|---|---|---|
| a, 5,000 objects | 1 |  | 2026-11-01, abc |
| a, 50,000 objects |  | 2 | 2026-11-02, def |
| a, 1,000,000 objects |  | 2 | 2026-11-02, def |
| b, 5,000 objects | 1 |  | 2026-11-01, abc |
`; got != want {
		t.Errorf("the table is\n%s", got)
	}
}

func TestFormats(t *testing.T) {
	for _, c := range []struct {
		unit  Unit
		value float64
		want  string
	}{
		{Seconds, 9.8e-8, "98 ns"}, {Seconds, 5.64e-6, "5.64 µs"}, {Seconds, 0.0425, "42.5 ms"}, {Seconds, 1.5, "1.50 s"},
		{Bytes, 91.2, "91 B"}, {Bytes, 21400, "21.4 KB"}, {Bytes, 4.75e8, "475 MB"}, {Bytes, 3.17e9, "3.17 GB"},
		{Exponent, 0.9643, "0.96"}, {Count, 1e6, "1,000,000"}, {Count, 1234.5, "1234.5"}, {Count, 12, "12"}, {Count, math.NaN(), "–"},
	} {
		if got := c.unit.Format(c.value); got != c.want {
			t.Errorf("%v %s is %q, want %q", c.value, c.unit, got, c.want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 10_000: "10,000", 1_000_001: "1,000,001"} {
		if got := Number(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	for ratio, want := range map[float64]string{0.15: "0.15×", 0.0004: "< 0.001×", 4.27: "4.27×", math.Inf(1): "–"} {
		if got := FormatRatio(ratio); got != want {
			t.Errorf("%v is %q, want %q", ratio, got, want)
		}
	}
}

func TestCommand(t *testing.T) {
	set := flag.NewFlagSet("", flag.ContinueOnError)
	set.String("rows", "", "")
	set.Int("pods", 1, "")
	set.Int("other", 1, "")
	set.Bool("latest", false, "")
	set.Bool("test.v", false, "")
	for want, args := range map[string][]string{
		"make bench": {"-test.v"},
		"make bench ARGS='-latest=true -other 2'":         {"-latest", "-other", "2"},
		`make bench ARGS='-pods 20 -rows "^first|^idle"'`: {"-rows", "^first|^idle", "-pods", "20", "-test.v"},
	} {
		set := *set
		if err := set.Parse(args); err != nil {
			t.Fatal(err)
		}
		if got := command("bench", &set); got != want {
			t.Errorf("%q is %s, want %s", args, got, want)
		}
	}
}

// The results of a part that was recorded before are no change of the sources.
func TestCommit(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		args = append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"}, args...)
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	write("a.go", "package a")
	write(results+"/part.json", "{}")
	git("add", ".")
	git("commit", "-qm", "a")
	for _, c := range []struct {
		name, text string
		dirty      bool
	}{{results + "/part.json", "{ }", false}, {"new", "", false}, {"a.go", "package b", true}} {
		write(c.name, c.text)
		id, err := commitOf(dir)
		if err != nil || strings.HasSuffix(id, "-dirty") != c.dirty || len(strings.TrimSuffix(id, "-dirty")) != 12 {
			t.Errorf("after a change of %s the commit is %q, %v", c.name, id, err)
		}
	}
}
