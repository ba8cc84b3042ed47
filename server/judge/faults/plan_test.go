package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNamedPlans(t *testing.T) {
	plans := Plans()
	for _, name := range []string{"aks-idle", "rolling-restart", "compaction", "lossy-lb", "restored-etcd",
		"relist-storm"} {
		if _, _, err := NamedPlan(name); err != nil {
			t.Error(err)
		}
	}
	for _, p := range plans {
		if named, text, err := NamedPlan(p.Name); err != nil || !reflect.DeepEqual(named, p) || len(text) == 0 {
			t.Errorf("%s: not found by its name: %v", p.Name, err)
		}
		if p.Description == "" || !isWebAddress(p.Incident) || len(p.Rules) == 0 {
			t.Errorf("%s: has no description, incident or rules: %+v", p.Name, p)
		}
	}
	if _, _, err := NamedPlan("../doc.go"); err == nil {
		t.Error("a plan outside of the folder")
	}
}

// TestBadPlans checks that an error names the place.
func TestBadPlans(t *testing.T) {
	tests := []struct{ plan, want string }{
		{"rules:\n- fault: cut\n- fautl: cut", `unknown field "rules[1].fautl"`},
		{"rules:\n- fault: cut\n  match: {verbs: list}", `unknown field "rules[0].match.verbs"`},
		{"rules:\n- fault: cutt", `rules[0].fault: unknown fault "cutt": one of cut, `},
		{"rules:\n- fault: cut\n  fault: cut", "line 3"},
		{"rules: {fault: cut}", "Plan.rules"},
		{"rules:\n- fault: cut\n  for: 3s", "rules[0].for: cut has none"},
		{"rules:\n- fault: delay", "rules[0].for: delay needs one"},
		{"rules:\n- fault: delay\n  for: 3 days", "days"},
		{"rules:\n- fault: status", "rules[0].status: status needs one"},
		{"rules:\n- fault: status\n  status: Tired", `rules[0].status: unknown reason "Tired"`},
		{"rules:\n- fault: skip\n  match: {verb: get}", `rules[0].match.verb: the fault does not occur with "get"`},
		{"rules:\n- fault: cut\n  match: {verb: delete}", "writes always pass"},
		{"rules:\n- fault: cut\n  match: {nth: [0]}", "rules[0].match.nth"},
		{"rules:\n- fault: cut\n  match: {from: 5s, until: 5s}", "rules[0].match.until"},
		{"rules:\n- fault: cut\n  match: {labelSelector: 'a in'}", "rules[0].match.labelSelector"},
		{"rules:\n- fault: cut\n  match: {fieldSelector: 'a'}", "rules[0].match.fieldSelector"},
		{"rules:\n- fault: cut\n  probability: 1.5", "rules[0].probability"},
		{"rules:\n- fault: cut\n  after: {bytes: 1, events: 1}", "rules[0].after"},
		{"rules:\n- fault: cut\n  after: {random: true}", "rules[0].after.random"},
		{"rules:\n- fault: cut\n  after: {events: -1}", "rules[0].after"},
		{"rules:\n- fault: cut\n  match: {verb: list}\n  after: {events: 3}", "rules[0].after: events, idle and time"},
		{"rules:\n- fault: outage\n  for: 1s\n  match: {verb: get}\n  after: {time: 1s}", "match.verb is get"},
		{"rules:\n- fault: oversized\n  size: 99999999999", "rules[0].size"},
		{"rules:\n- fault: slow\n  rate: -1", "rules[0].rate"},
		{"seed: -1", "seed"},
		{"\t", "yaml"},
		{strings.Repeat(" ", maxPlan+1), "more than"},
	}
	for _, test := range tests {
		if _, err := ParsePlan([]byte(test.plan)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.80q: got %v, want %q", test.plan, err, test.want)
		}
	}
	if _, err := ReadPlan(t.TempDir()); err == nil {
		t.Error("read a folder")
	}
}

func TestReadPlanNamesItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(file, []byte("rule: []"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPlan(file); err == nil || !strings.Contains(err.Error(), file) ||
		!strings.Contains(err.Error(), `"rule"`) {
		t.Errorf("got %v", err)
	}
}

func TestMatch(t *testing.T) {
	base := Request{Class: Watch, Resource: "pods", Namespace: "a", Client: "kubectl/v1", labelSelector: "x=1,y=2",
		fieldSelector: "b=1,a=2"}
	list := base
	list.Class = List
	write := base
	write.Class = Write
	tests := []struct {
		match string
		req   Request
		now   time.Duration
		want  bool
	}{
		{"{}", base, 0, true},
		{"{}", write, 0, false},
		{"{verb: watch}", base, 0, true},
		{"{verb: watch}", list, 0, false},
		{"{verb: watchlist}", base, 0, false},
		{"{verb: list}", list, 0, true},
		{"{verb: page}", list, 0, false},
		{"{resource: pods}", base, 0, true},
		{"{resource: pods.example.com}", base, 0, false},
		{"{namespace: a}", base, 0, true},
		{"{namespace: b}", base, 0, false},
		{"{userAgent: kubectl}", base, 0, true},
		{"{userAgent: curl}", base, 0, false},
		{"{labelSelector: 'y=2,x=1'}", base, 0, true},
		{"{labelSelector: 'x=1'}", base, 0, false},
		{"{fieldSelector: 'a=2,b=1'}", base, 0, true},
		{"{fieldSelector: 'a=2'}", base, 0, false},
		{"{from: 5s}", base, 4 * time.Second, false},
		{"{from: 5s}", base, 5 * time.Second, true},
		{"{until: 5s}", base, 5 * time.Second, false},
	}
	for _, test := range tests {
		plan, err := ParsePlan(fmt.Appendf(nil, "rules:\n- fault: cut\n  match: %s", test.match))
		if err != nil {
			t.Fatal(err)
		}
		rules, err := plan.compile()
		if err != nil {
			t.Fatal(err)
		}
		if got := newDraws(1, rules).fault(test.req, test.now); (got.kind == cut) != test.want {
			t.Errorf("%s: got %v for %+v", test.match, got, test.req)
		}
	}
}

// A rule whose place only a watch has leaves other requests to the later rules.
func TestPlacesOfWatches(t *testing.T) {
	rules, err := (&Plan{Rules: []Rule{{Fault: "stall", After: Position{Idle: metav1.Duration{Duration: time.Second}}},
		{Fault: "cut"}}}).compile()
	if err != nil {
		t.Fatal(err)
	}
	for class, want := range map[Class]kind{Watch: stall, StreamList: stall, List: cut, Get: cut} {
		if got := newDraws(1, rules).fault(Request{Class: class}, 0); got.kind != want {
			t.Errorf("%s: %v, want %s", class, got, want)
		}
	}
}

func TestNthAndEveryAreCountedForEachClient(t *testing.T) {
	rules, err := (&Plan{Rules: []Rule{
		{Fault: "cut", Match: Match{Nth: []int{2, 5}}},
		{Fault: "reset", Match: Match{Every: 3}},
	}}).compile()
	if err != nil {
		t.Fatal(err)
	}
	d := newDraws(1, rules)
	for n := 1; n <= 7; n++ {
		for _, client := range []string{"a", "b"} {
			got := d.fault(Request{Class: List, Resource: "pods", Client: client}, 0).Name()
			want := map[int]string{2: "cut", 5: "cut", 4: "reset"}[n] // the second rule sees all but 2 and 5
			if want == "" {
				want = "none"
			}
			if got != want {
				t.Errorf("request %d of %s: %s, want %s", n, client, got, want)
			}
		}
	}
}

// TestSeedReplays draws the faults of several clients twice, in two orders.
func TestSeedReplays(t *testing.T) {
	plan, _, err := NamedPlan("lossy-lb")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := plan.compile()
	if err != nil {
		t.Fatal(err)
	}
	drawn := func(seed uint64, clients ...string) map[string]string {
		d, faults := newDraws(seed, rules), make(map[string]string)
		for n := range 100 {
			for _, client := range clients {
				f := d.fault(Request{Class: Watch, Resource: "pods", Client: client}, 0)
				faults[fmt.Sprint(client, n)] = f.String()
			}
		}
		return faults
	}
	first, again, other := drawn(7, "a", "b"), drawn(7, "b", "a"), drawn(8, "a", "b")
	if !reflect.DeepEqual(first, again) {
		t.Error("the same seed draws other faults")
	}
	same := 0
	for key := range first {
		if first[key] == other[key] {
			same++
		}
	}
	if same > len(first)/2 {
		t.Errorf("%d of %d faults are the same by another seed", same, len(first))
	}
}

// TestManyRules bounds neither the time nor the memory of a decision by a figure; it is a plan of 10,000 rules, of
// which the last one decides, and more clients than there are counters.
func TestManyRules(t *testing.T) {
	var plan Plan
	for i := range 9_999 {
		plan.Rules = append(plan.Rules, Rule{Fault: "cut", Match: Match{Resource: fmt.Sprint("r", i)}})
	}
	plan.Rules = append(plan.Rules, Rule{Fault: "reset"})
	_, upstream := newCluster(t, 0)
	p := New(t, upstream, plan)
	if _, _, err := newClient(t, p, true).read(t, pods); err == nil {
		t.Error("the last rule had no effect")
	}
	rules, err := (&Plan{Rules: plan.Rules[9_999:]}).compile()
	if err != nil {
		t.Fatal(err)
	}
	d := newDraws(1, rules)
	for i := range maxCounters + 1000 {
		if f := d.fault(Request{Class: List, Client: fmt.Sprint(i)}, 0); f.kind != reset {
			t.Fatalf("client %d met %s", i, f)
		}
	}
	if len(d.counts) > maxCounters+1 {
		t.Errorf("%d counters", len(d.counts))
	}
	if _, err := (&Plan{Rules: make([]Rule, maxRules+1)}).compile(); err == nil {
		t.Error("a plan without bound")
	}
}

// TestManyResources counts the requests of a client that invents resources: all of them, with bounded memory.
func TestManyResources(t *testing.T) {
	const more = 1000
	seen := newTranscript(nil)
	for i := range maxCounters + more {
		seen.begin(Request{Class: List, Resource: fmt.Sprint("r", i)})
	}
	if len(seen.counts) > maxCounters+1 {
		t.Errorf("%d counters", len(seen.counts))
	}
	if n := seen.count(List, ""); n != maxCounters+more {
		t.Errorf("%d requests were counted", n)
	}
}
