package figures

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Run is one run of a benchmark, which is the part of this name.
type Run struct {
	Part    string    `json:"part"`
	Date    time.Time `json:"date"`
	Commit  string    `json:"commit"` // with -dirty if the sources were changed
	Command string    `json:"command"`
	Seed    string    `json:"seed,omitempty"` // of random data, if it is not the command's
	Machine string    `json:"machine"`
	// Peers are the contenders beside ours, in the order of columns.
	Peers   []string  `json:"peers"`
	Figures []*Figure `json:"figures"`
	// Failed are the steps without figures.
	Failed []string `json:"failed,omitempty"`
	// Rows has the date and the commit of each row, if rows of several runs are kept.
	Rows map[string]string `json:"rows,omitempty"`
}

// record is the flag of benchmarks that store what they measure.
var record = flag.String("figures.record", "",
	"write what a benchmark measures into test/results/figures, as the part of this name")

// NewRun begins a run. target is the Makefile's target that repeats it, with the flags of this process in ARGS.
func NewRun(target string, peers ...string) *Run {
	return &Run{Part: *record, Date: time.Now().UTC().Truncate(time.Second), Command: command(target, flag.CommandLine),
		Machine: machine(), Peers: peers}
}

// command returns the command that runs a target with the flags that are set, except those of go test.
func command(target string, set *flag.FlagSet) string {
	var args []string
	set.Visit(func(f *flag.Flag) {
		boolean, ok := f.Value.(interface{ IsBoolFlag() bool })
		switch {
		case strings.HasPrefix(f.Name, "test."):
		case ok && boolean.IsBoolFlag():
			args = append(args, fmt.Sprintf("-%s=%s", f.Name, f.Value))
		default:
			args = append(args, fmt.Sprintf("-%s %s", f.Name, quoted(f.Value.String())))
		}
	})
	if args == nil {
		return "make " + target
	}
	return fmt.Sprintf("make %s ARGS='%s'", target, strings.Join(args, " "))
}

// quoted returns a flag's value as it stands within the quotes of ARGS.
func quoted(value string) string {
	if strings.ContainsAny(value, " |^$()?*\\;&") {
		return `"` + value + `"`
	}
	return value
}

// SetLoad adds a figure of how busy the machine is, before anything is measured.
func (r *Run) SetLoad() {
	text, _ := os.ReadFile("/proc/loadavg") // Linux only
	var one, five float64
	if _, err := fmt.Sscan(string(text), &one, &five); err == nil {
		r.Of("load average of the machine before", "5 minutes", Count).Set(Ours, 0, five)
	}
}

// Of returns the figure of a row and measure, which it adds if there is none.
func (r *Run) Of(row, measure string, unit Unit) *Figure {
	for _, f := range r.Figures {
		if f.Row == row && f.Measure == measure {
			return f
		}
	}
	f := &Figure{Row: row, Measure: measure, Unit: unit}
	r.Figures = append(r.Figures, f)
	return f
}

// Record writes the run's file, if the flag -figures.record is set.
func (r *Run) Record() error { return r.record(func(dir string) error { return r.save(dir) }) }

// RecordRows is Record, but the file keeps the rows of earlier runs that this one has not measured.
func (r *Run) RecordRows() error { return r.record(r.saveRows) }

func (r *Run) record(save func(dir string) error) error {
	if r.Part == "" {
		return nil
	}
	root, err := root()
	if err != nil {
		return err
	}
	if r.Commit, err = commitOf(root); err != nil {
		return err
	}
	return save(filepath.Join(root, results))
}

func (r *Run) saveRows(dir string) error {
	all, err := load(dir, r.Part)
	if errors.Is(err, fs.ErrNotExist) {
		all, err = &Run{}, nil
	}
	if err != nil {
		return err
	}
	measured, kept, rows := r.rows(), all.Figures, all.Rows
	if rows == nil {
		rows = map[string]string{}
	}
	*all = *r
	all.Rows = rows
	for _, row := range measured {
		rows[row] = r.Date.Format("2006-01-02") + ", " + r.Commit
	}
	all.Figures = slices.Concat(slices.DeleteFunc(kept, func(f *Figure) bool {
		return slices.Contains(measured, f.Row)
	}), r.Figures)
	slices.SortStableFunc(all.Figures, inOrder)
	return all.save(dir)
}

// inOrder compares rows such as "proxy, 5,000 objects" by what is before the first comma, and then by the number.
func inOrder(a, b *Figure) int {
	nameA, _, _ := strings.Cut(a.Row, ",")
	nameB, _, _ := strings.Cut(b.Row, ",")
	return cmp.Or(cmp.Compare(nameA, nameB), cmp.Compare(len(a.Row), len(b.Row)), cmp.Compare(a.Row, b.Row))
}

// commitOf returns the commit of a repository's sources, with -dirty if they are changed. The results of other runs are
// no sources.
func commitOf(root string) (string, error) {
	id, err := exec.Command("git", "-C", root, "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("git rev-parse: %w", err)
	}
	changed, err := exec.Command("git", "-C", root, "status", "--porcelain", "--untracked-files=no", "--", ".",
		":(exclude)test/results").Output()
	if err != nil {
		return "", fmt.Errorf("git status: %w", err)
	}
	if len(changed) > 0 {
		return strings.TrimSpace(string(id)) + "-dirty", nil
	}
	return strings.TrimSpace(string(id)), nil
}

// results is the folder of the runs, below the repository's root.
const results = "test/results/figures"

func (r *Run) save(dir string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.Part+".json"), append(text, '\n'), 0o644)
}

// load returns the last run of a part.
func load(dir, part string) (*Run, error) {
	file := filepath.Join(dir, part+".json")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &Run{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// root returns the repository's root, found upwards from the working folder: it has a go.work and a ROADMAP.md.
func root() (string, error) {
	at, err := os.Getwd()
	for err == nil {
		if exists(at, "go.work") && exists(at, "ROADMAP.md") {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", errors.New("the working folder is in no clone of the repository")
		}
		at = filepath.Dir(at)
	}
	return "", err
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return !errors.Is(err, fs.ErrNotExist)
}

func machine() string {
	memory := "unknown memory"
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kb int
		if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kb); err == nil {
			memory = fmt.Sprintf("%d GiB", (kb+1<<19)>>20)
		}
	}
	return fmt.Sprintf("%s/%s, %d cores, %s, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), memory,
		runtime.Version())
}

// rows returns the names of the rows, in the order in which they were measured.
func (r *Run) rows() (names []string) {
	for _, f := range r.Figures {
		if !slices.Contains(names, f.Row) {
			names = append(names, f.Row)
		}
	}
	return names
}

// Find returns the figure of a row and measure, an empty one if it was not measured.
func (r *Run) Find(row, measure string) *Figure {
	for _, f := range r.Figures {
		if f.Row == row && f.Measure == measure {
			return f
		}
	}
	return &Figure{Row: row, Measure: measure}
}
