// Package judged judges operators with several frameworks and languages, with mistakes that their flag --bug seeds, and
// without one. Each is an operator of Widgets. Those in Go are this test's program; the others are in
// test/matrix/clients.
package judged

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	seedsFlag = flag.Int("judged.seeds", 1, "how many seeds choose plans for each operator without a bug")
	plansFlag = flag.Int("judged.plans", 4, "how many plans a seed chooses")
)

// language is an operator, as a command.
type language struct {
	name    string
	command []string
	needs   string // a file that its command lacks without make
	make    string // what makes it
}

var languages = []language{
	{name: "controller-runtime", command: []string{program}},
	{name: "operator", command: []string{program}},
	{
		name: "javascript", command: []string{"node", "test/matrix/clients/javascript/widgets.mjs"},
		needs: "test/matrix/clients/javascript/node_modules", make: "javascript",
	},
	{name: "java", command: java("7.9.0"), needs: "bin/java/7.9.0/widgets", make: "java"},
	{name: "josdk", command: java("josdk"), needs: "bin/java/josdk/widgets", make: "java"},
	{
		name: "kopf", command: []string{"bin/python/bin/python", "test/matrix/clients/python/widgets_kopf.py"},
		needs: "bin/python/installed", make: "python",
	},
	{
		name: "rust", command: []string{"bin/rust/debug/widgets"}, needs: "bin/rust/debug/widgets", make: "rust",
	},
}

func java(folder string) []string {
	path := "bin/java/" + folder
	return []string{"java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-cp", path + "/widgets:" + path + "/lib/*", "Widgets"}
}

// asOperator names the operator that the test's program is.
const asOperator = "KEEPWATCH_JUDGED_OPERATOR"

// inGo are the operators that the test's program can be.
var inGo = map[string]func(args []string) error{
	"controller-runtime": runReconciler, "operator": runHandlers, "webhooks": runGuarded,
}

// program is the test's.
var program = func() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}()

func TestMain(m *testing.M) {
	if name := os.Getenv(asOperator); name != "" {
		if err := inGo[name](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	peer.Main(m)
}

// bug is a mistake that a flag seeds: the plan that shows it, or their kind, and its verdict.
type bug struct{ name, plan, verdict string }

// bugs begin with those that are judged with -short.
var bugs = []bug{
	{"generate-name", "lost-answer:1:create:configmaps:default/web-*:1", "duplicated"},
	{"finalizer", "crash-after-write:3:delete:configmaps:default/web-log:1", "leaked"},
	{"status-first", "crash-after-write:1:update:widgets.example.com/status:default/web:1", "diverged"},
	{"hot-loop", "conflict:2:update:configmaps:default/web:1", "restless"},
	{"event-only", "downtime:3", "leaked"},
	{"fight", "foreign-annotation:1:create:configmaps:default/web:1", "fighting"},
	{"intermediate", "unobserved", "diverged"},
	{"password", "crash-after-write:1:update:widgets.example.com/status:default/web:1", "diverged"},
	{"put", "foreign-edit:2:update:configmaps:default/web:1", "overwritten"},
	{"right", "failing:1:create:configmaps:default/web:1", "forbidden"},
	{"stale-cache", "stale-restart:1:create:configmaps:default/web-*:1", "duplicated"},
	{"stale-list", "time-travel:1:create:configmaps:default/web-log:1", "deleted"},
	{"cross-namespace", "downtime:3", "leaked"},
	{"default", "none", "restless"},
}

// eachLanguage runs a test for each operator that this machine can run.
func eachLanguage(t *testing.T, test func(*testing.T, language)) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			if _, err := os.Stat(filepath.Join(root, l.needs)); err != nil {
				t.Skipf("the operator is NOT judged: run make %s", l.make)
			}
			test(t, l)
		})
	}
}

// Each seeded bug is found by its plans. With -short it is the first one.
func TestSeededBugs(t *testing.T) {
	eachLanguage(t, func(t *testing.T, l language) {
		for i, b := range bugs {
			if testing.Short() && i > 0 {
				continue
			}
			t.Run(b.name, func(t *testing.T) {
				r := judge(t, l, []string{"--bug", b.name}, "--plan", b.plan, "--patience", "10s", "--repeat", "1")
				found := func(f finding) bool { return f.Verdict == b.verdict }
				if !slices.ContainsFunc(r.Findings, found) {
					t.Errorf("not %s in %v of %v, %s", b.verdict, r.Findings, r.Results, r.Stopped)
				}
			})
		}
	})
}

// Without a bug, an operator has no finding. With -short one plan disturbs it, whose place all of them come to in any
// run: a seed chooses another one if the writes of a run differ, as on a slow machine.
func TestCorrectTwins(t *testing.T) {
	eachLanguage(t, func(t *testing.T, l language) {
		plans, chosen := *plansFlag, []string{"--limit", fmt.Sprint(*plansFlag)}
		if testing.Short() {
			plans, chosen = 1, []string{"--plan", "lost-answer:1:create:configmaps:default/web:1"}
		}
		for seed := 1; seed <= *seedsFlag; seed++ {
			r := judge(t, l, nil, append(chosen, "--seed", fmt.Sprint(seed), "--patience", "5m")...)
			reached := func(one result) bool { return one.Reached }
			if len(r.Findings) > 0 || len(r.Results) != plans || !slices.ContainsFunc(r.Results, reached) {
				t.Errorf("seed %d: %v of %v, %s", seed, r.Findings, r.Results, r.Stopped)
			}
		}
	})
}

// report is what the tests read of a report.
type report struct {
	Findings []finding `json:"findings"`
	Results  []result  `json:"results"`
	Stopped  string    `json:"stopped"`
}

type result struct {
	Plan    json.RawMessage `json:"plan"`
	Reached bool            `json:"reached"`
	Reason  string          `json:"reason"`
}

func (r result) String() string { return fmt.Sprintf("%s reached %v %s", r.Plan, r.Reached, r.Reason) }

type finding struct {
	Verdict string          `json:"verdict"`
	Plan    json.RawMessage `json:"plan"`
	Facts   []string        `json:"facts"`
}

func (f finding) String() string { return fmt.Sprintf("%s %s: %q", f.Verdict, f.Plan, f.Facts) }

func judge(t *testing.T, l language, operator []string, flags ...string) report {
	t.Helper()
	args := slices.Concat([]string{
		"judge", "--crds", "examples/widgets.yaml", "--crds", "test/judged/testdata/namespace.yaml",
		"--rbac", "test/judged/testdata/rbac.yaml", "--workload", "test/judged/testdata/workload", "--shrink=false", "-o", "json",
	}, flags, []string{"--"}, l.command, operator)
	cmd := exec.CommandContext(t.Context(), peer.Keepwatch(t), args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), asOperator+"="+l.name)
	out, err := cmd.Output()
	exit := (*exec.ExitError)(nil)
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %v\n%s\n%s", cmd.Args, err, out, exit.Stderr)
	}
	return r
}
