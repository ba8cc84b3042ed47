package operators

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Names of which parts are random have a pattern, also if somebody else makes them of a name that is random already, or
// their parts are not equally long in all runs.
func TestLearnNames(t *testing.T) {
	for _, c := range []struct {
		name string
		runs [][]string
		want string
	}{
		{"a random end", [][]string{{"web-a1b2c3"}, {"web-d4e5f6"}, {"web-g7h8i9"}}, "web-*"},
		{"a random middle", [][]string{{"web-a1b2c-config"}, {"web-d4e5f-config"}, {"web-g7h8i-config"}}, "web-*-config"},
		{"a hash of any length", [][]string{{"web-7f9c6b8d5f"}, {"web-6d4b75c9d"}, {"web-58f8c7b9d4"}}, "web-*"},
		{"a hash before what the server generates",
			[][]string{{"web-7f9c6b8d5f-*"}, {"web-6d4b75c9d-*"}, {"web-58f8c7b9d4-*"}}, "web-*-*"},
		{"a hash and a random end", [][]string{{"web-7f9c6b8d5-abcde"}, {"web-6d4b75c9d-fghij"}, {"web-58f8c7b9d-klmno"}},
			"web-*-*"},
		{"hashes of two lengths in each run", [][]string{
			{"web-aaaa1-7f9c6b8d5f-*", "web-aaaa2-6d4b75c9d-*"}, {"web-bbbb1-58f8c7b9d-*", "web-bbbb2-7dc758d97f-*"},
			{"web-cccc1-7d4f58549f-*", "web-cccc2-5f2ca3115-*"},
		}, "web-*-*-*"},
		{"not what swallows a fixed name", [][]string{{"web-config", "web-a"}, {"web-config", "web-aa1a"},
			{"web-config", "web-a1a1a1a"}}, ""},
		{"not what swallows a fixed name of its length", [][]string{{"web-config", "web-a1b2c3"},
			{"web-config", "web-d4e5f6"}, {"web-config", "web-g7h8i9"}}, ""},
		{"no name of its own", [][]string{{"web"}, {"web"}, {"web"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var outcomes []*outcome
			for _, names := range c.runs {
				s := state{}
				for _, name := range names {
					s["pods shop/"+name], s["pods shop/"+name+"[2]"] = fields{}, fields{}
				}
				outcomes = append(outcomes, &outcome{states: []state{s}})
			}
			var got []string
			for _, p := range learnNames(outcomes) {
				got = append(got, p.of.Name)
				for _, names := range c.runs {
					place := Place{Resource: "pods", Namespace: "shop", Name: names[len(names)-1]}
					if name := anyName([]namePattern{p}, place); name != c.want {
						t.Errorf("%s is %s", place.Name, name)
					}
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	if name := anyName(nil, Place{Name: "job-5d0a8f0e-6f0b-4c57-9a2f-0123456789ab-x"}); name != "job-*-x" {
		t.Errorf("a name with a UID is %s", name)
	}
}

// The random names of one type in one namespace say nothing about names of other types, or in other namespaces. A text
// that has the name of an object has its pattern, whatever object the text belongs to.
func TestPatternsOfOneType(t *testing.T) {
	var outcomes []*outcome
	for _, name := range []string{"backup-1733000000", "backup-1733000007", "backup-1733000023"} {
		outcomes = append(outcomes, &outcome{states: []state{{
			"jobs.batch shop/" + name: {}, "secrets shop/" + strings.TrimPrefix(name, "backup-"): {},
			"jobs.batch other/backup-weekly": {}, "configmaps shop/backup-config": {}, "configmaps shop/backup-scripts": {},
			"secrets other/fixed": {},
		}}})
	}
	traffic := newTraffic(user)
	traffic.names = learnNames(outcomes)
	const want = "[jobs.batch shop/backup-* secrets shop/*]"
	if got := fmt.Sprint(traffic.names); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	arrive := func(group, resource, namespace, name, prefix string) string {
		r, _ := traffic.arrive(&request.RequestInfo{Verb: "create", APIGroup: group, Resource: resource,
			Namespace: namespace}, name, prefix)
		return r.Name
	}
	for _, c := range []struct{ group, resource, namespace, name, prefix, want string }{
		{"batch", "jobs", "shop", "backup-1733000099", "", "backup-*"},
		{"batch", "jobs", "other", "backup-weekly", "", "backup-weekly"},
		{"", "configmaps", "shop", "backup-config", "", "backup-config"},
		{"", "pods", "shop", "", "backup-", "backup-*"},
		{"", "pods", "shop", "backup-abcde", "", "backup-*"},
		{"", "pods", "other", "backup-abcde", "", "backup-abcde"},
		{"", "services", "shop", "backup-login", "", "backup-login"},
	} {
		if got := arrive(c.group, c.resource, c.namespace, c.name, c.prefix); got != c.want {
			t.Errorf("%s %s/%s%s is %s, want %s", c.resource, c.namespace, c.name, c.prefix, got, c.want)
		}
	}
	objects, err := parseObjects([]byte(`
{apiVersion: batch/v1, kind: Job, metadata: {name: backup-1733000099, namespace: shop}, spec: {volume: backup-config}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: backup-config, namespace: shop}, data: {job: backup-1733000099}}
`))
	if err != nil {
		t.Fatal(err)
	}
	s := newState([]unstructured.Unstructured{*objects[0], *objects[1]},
		map[string]string{"Job.batch": "jobs.batch", "ConfigMap.": "configmaps"}, traffic.patterns(), nil)
	if text := s["jobs.batch shop/backup-*"]["spec.volume"]; text != "backup-config" {
		t.Errorf("a fixed name in a text is %q: %v", text, s)
	}
	if text := s["configmaps shop/backup-config"]["data.job"]; text != "backup-*" {
		t.Errorf("a random name in a text is %q: %v", text, s)
	}
}

// What the server has generated is replaced in the names of fields, too.
func TestGeneratedFieldNames(t *testing.T) {
	run := func(id string) state {
		objects, err := parseObjects([]byte(`
{apiVersion: v1, kind: Secret, metadata: {name: web-` + id[31:] + `, namespace: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: shop}, data: {"web-` + id + `.yaml": a, "web-` +
			id[31:] + `": b, plain: c}}
`))
		if err != nil {
			t.Fatal(err)
		}
		random := []namePattern{generated(Place{Resource: "secrets", Namespace: "shop"}, "web-")}
		return newState([]unstructured.Unstructured{*objects[0], *objects[1]},
			map[string]string{"Secret.": "secrets", "ConfigMap.": "configmaps"}, random, nil)
	}
	first := run("5d0a8f0e-6f0b-4c57-9a2f-0123456789ab")
	if found := differences(first, run("1c2d3e4f-6f0b-4c57-9a2f-ba9876543210")); len(found) > 0 {
		t.Error(found)
	}
	want := []string{"apiVersion", "data.plain", "data.web-*", "data.web-a UID.yaml", "kind"}
	if got := sortedKeys(first["configmaps shop/web"]); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The order of conditions, which are known by their types, says nothing.
func TestOrderOfConditions(t *testing.T) {
	run := func(first, second string) state {
		objects, err := parseObjects([]byte(`{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop},
status: {conditions: [{type: ` + first + `, status: yes}, {type: ` + second + `, status: yes}]}, spec: {order: [` + first + `]}}`))
		if err != nil {
			t.Fatal(err)
		}
		return newState([]unstructured.Unstructured{*objects[0]}, map[string]string{"Pod.": "pods"}, nil, nil)
	}
	found := differences(run("Ready", "Done"), run("Done", "Ready"))
	if len(found) != 1 || found[0].path != "spec.order[0]" {
		t.Error(found)
	}
	twice := run("Ready", "Ready")
	if f := twice["pods shop/web"]; f["status.conditions[0].type"] == "" || f["status.conditions[1].type"] == "" {
		t.Errorf("conditions of one type: %v", f)
	}
}

// An object more or less among those with random names is one difference, wherever its content has its place.
func TestAlikeObjects(t *testing.T) {
	say := func(words ...string) state {
		s := state{}
		for i, word := range words {
			s[numbered("pods shop/web-*", i+1)] = fields{"spec": word}
		}
		return s
	}
	for _, c := range []struct {
		want, have state
		texts      string
	}{
		{say("b", "c"), say("a", "b", "c"), "pods shop/web-*[3] is there"},
		{say("b", "c"), say("c"), "pods shop/web-* is missing"},
		{say("b", "c"), say("b", "c"), ""},
		{say("b", "c"), say("a", "b"), `pods shop/web-*[2]: spec is "a", without the fault "c"`},
	} {
		var texts []string
		for _, d := range differences(c.want, c.have) {
			texts = append(texts, d.String())
		}
		if got := strings.Join(texts, ", "); got != c.texts {
			t.Errorf("%v beside %v: %s", c.have, c.want, got)
		}
	}
}

// A word for a value that may be any does not depend on other such values.
func TestWordsOfValues(t *testing.T) {
	run := func(n int, more ...string) state {
		word := fmt.Sprint("password ", n)
		s := state{"secrets shop/web": {"data": word}, "widgets shop/web": {"status": word}}
		for _, name := range more {
			s["configmaps shop/"+name] = fields{"data": fmt.Sprint("another one ", n)}
		}
		return s
	}
	m := newMask([]state{run(1, "a"), run(2, "a"), run(3, "a")})
	for _, d := range differences(m.on(run(1, "a")), m.on(run(4))) {
		if !d.isMissing() {
			t.Error(d)
		}
	}
	other := run(4, "a")
	other["widgets shop/web"]["status"] = "the password before"
	if found := differences(m.on(run(1, "a")), m.on(other)); len(found) != 1 {
		t.Errorf("a second password: %v", found)
	}
}

// An object with a random name is needed unless the operator has created more of its kind than there should be.
func TestDeletionsOfRandomNames(t *testing.T) {
	want := state{"pods shop/web-*": {}, "pods shop/web-*[2]": {}}
	traffic, exist := newTraffic(user), map[string]bool{"web-of-somebody": true}
	record := func(verb, name string, status int) *Request {
		r := &Request{Place: Place{Verb: verb, Resource: "pods", Namespace: "shop", Name: "web-*"}, Status: status}
		o := &unstructured.Unstructured{}
		o.SetName(name)
		if verb == "delete" {
			traffic.deleted(r, name, traffic.ownNames(r.key()), exist)
			delete(exist, name)
		} else {
			traffic.wrote(r, o)
			exist[name] = true
		}
		return r
	}
	for _, name := range []string{"web-a", "web-b", "web-c"} {
		record("create", name, 201)
	}
	for _, c := range []struct {
		name   string
		needed bool
	}{{"web-a", false}, {"web-a", false}, {"web-of-somebody", false}, {"web-b", true}, {"web-c", true}} {
		if got := want.needs(*record("delete", c.name, 200)); got != c.needed {
			t.Errorf("%s is needed: %v", c.name, got)
		}
	}
	for _, name := range []string{"web-d", "web-e", "web-f"} {
		record("create", name, 201)
	}
	delete(exist, "web-d") // by the garbage collector
	own := traffic.ownNames("pods shop/web-*")
	if !want.needs(*record("delete", "web-e", 200)) {
		t.Error("what somebody else has deleted counts as the operator's")
	}
	record("create", "web-g", 201)
	record("create", "web-h", 201)
	exist["web-g"] = false // the list of what exists is older
	r := &Request{Place: Place{Verb: "delete", Resource: "pods", Namespace: "shop", Name: "web-*"}, Status: 200}
	if traffic.deleted(r, "web-f", own, exist); want.needs(*r) {
		t.Error("what was created after the list does not count")
	}
}

// Objects with random names may be exchanged, and a deletion that belongs to a step may come with the next one, if the
// plan shows both as one.
func TestDeletedFacts(t *testing.T) {
	ref := &reference{deletes: map[deletion]bool{{1, "configmaps shop/old"}: true}}
	for range 3 {
		ref.states = append(ref.states, state{
			"configmaps shop/web-*-config": {}, "configmaps shop/web": {}, "configmaps shop/old": {},
		})
	}
	for _, c := range []struct {
		kind, name string
		found      bool
	}{
		{"crash-after-write", "web", true}, {"crash-after-write", "web-*-config", false}, {"crash-after-write", "old", true},
		{"delayed", "old", false}, {"unobserved", "old", false}, {"delayed", "web", true},
	} {
		o := &outcome{plan: &Plan{Kind: c.kind, Place: Place{Step: 1}}, requests: []Request{{Status: 200, kept: true,
			Place: Place{Step: 2, Verb: "delete", Resource: "configmaps", Namespace: "shop", Name: c.name}}}}
		if facts := deletedFacts(o, ref); len(facts) > 0 != c.found {
			t.Errorf("%s %s: %q", c.kind, c.name, facts)
		}
	}
}

// Of many deletions, a report has those of claims and volumes, also in a collection.
func TestDeletedDataFirst(t *testing.T) {
	ref := &reference{states: make([]state, 2)}
	ref.states[1] = state{}
	o := &outcome{plan: &Plan{Kind: "failing", Place: Place{Step: 1}}, ended: 1}
	remove := func(verb, resource, namespace, name string) {
		place := Place{Step: 1, Verb: verb, Resource: resource, Namespace: namespace, Name: name}
		o.requests = append(o.requests, Request{Place: place, Status: 200, kept: true})
		ref.states[1][place.key()] = fields{}
	}
	for i := range maxFacts {
		remove("delete", "configmaps", "shop", fmt.Sprint(i))
	}
	remove("delete", "persistentvolumeclaims", "shop", "data")
	remove("deletecollection", "persistentvolumes", "", "")
	o.differences = []difference{{key: "persistentvolumes data", want: there}}
	want := []string{
		"step 1: the operator deletes persistentvolumeclaims shop/data",
		"step 1: the operator deletes persistentvolumes data in a collection",
	}
	if facts := deletedFacts(o, ref); len(facts) != maxFacts+2 || !slices.Equal(facts[:2], want) {
		t.Errorf("%q", facts)
	}
}

const twoVersions = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
`

// An object that was written in two versions is one, and a run beside a reference waits as long as this had to.
func TestVersionsOfOneObject(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	writeFile(t, folder+"/crd.yaml", twoVersions)
	o, err := Options{CRDs: []string{folder}, Operator: Operator{Command: []string{"none"}}, Workload: folder}.complete()
	if err != nil {
		t.Fatal(err)
	}
	base, err := newWorld(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer base.close()
	r, err := newRun(t.Context(), base, o, nil, &reference{quiet: time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.world.close()
	if r.options.Quiet != time.Hour {
		t.Errorf("quiet after %v", r.options.Quiet)
	}
	objects, err := parseObjects([]byte("{apiVersion: example.com/v1, kind: Gadget, metadata: {name: a}}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.world.apply(t.Context(), objects[0]); err != nil {
		t.Fatal(err)
	}
	of := typeSet{}
	for _, version := range []string{"v1", "v1beta1"} {
		of[schema.GroupVersionResource{Group: "example.com", Version: version, Resource: "gadgets"}] = true
	}
	s, err := r.world.state(t.Context(), of)
	if keys := slices.Sorted(maps.Keys(s)); err != nil || !slices.Equal(keys, []string{"gadgets.example.com default/a"}) {
		t.Errorf("%q, %v", keys, err)
	}
}

// The seed chooses the same plans in whatever order the operator writes.
func TestSeedChoosesPlans(t *testing.T) {
	ref := &reference{applied: make([][]string, 2), states: make([]state, 2)}
	for i := range 20 {
		ref.places = append(ref.places, Place{Step: 1, Verb: "create", Resource: "pods", Namespace: "shop", Name: fmt.Sprint(i),
			Nth: 1})
	}
	o := Options{Limit: 5, Seed: 1}
	choose := func() []Plan {
		all, err := derive(ref, nil, o)
		if err != nil {
			t.Fatal(err)
		}
		return o.limited(all)
	}
	some := choose()
	slices.Reverse(ref.places)
	if again := choose(); len(again) != o.Limit || !slices.Equal(some, again) {
		t.Errorf("%v, then %v", some, again)
	}
}

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
