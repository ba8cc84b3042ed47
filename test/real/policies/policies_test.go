// Package policies compares admission by policies and LimitRanges of a test server with that by kube-apiserver: random
// valid and invalid policies and bindings, what bound policies do to requests, and random LimitRanges and pods.
package policies

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/testserver"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	stepsFlag = flag.Int("policies.steps", 300, "how many random requests of each kind to compare")
	seedFlag  = flag.Uint64("policies.seed", 1, "draw requests as a run did that printed this seed; 0 draws anew")
)

func TestMain(m *testing.M) { peer.Main(m) }

// settleTimeout bounds the wait until a server applies a policy, which takes a second.
const settleTimeout = 2 * time.Minute

type object = map[string]any
type list = []any

// side is one of the two servers.
type side struct {
	dynamic.Interface
	warnings *warnings
}

// warnings has those of the last response.
type warnings struct{ texts []string }

func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }

func newSides(t *testing.T) []side {
	var sides []side
	for _, config := range []*rest.Config{peer.LatestKubernetes(t).Config(), testserver.New(t).Config()} {
		w := &warnings{}
		config = rest.CopyConfig(config)
		config.WarningHandler = w
		config.QPS = -1
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		sides = append(sides, side{client, w})
	}
	return sides
}

func newRandom(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-policies.seed %d", seed)
	return rand.New(rand.NewPCG(seed, 3))
}

var resources = map[string]schema.GroupVersionResource{
	"ConfigMap": {Version: "v1", Resource: "configmaps"}, "Pod": {Version: "v1", Resource: "pods"},
	"LimitRange":            {Version: "v1", Resource: "limitranges"},
	"PersistentVolumeClaim": {Version: "v1", Resource: "persistentvolumeclaims"},
	"ValidatingAdmissionPolicy": {Group: "admissionregistration.k8s.io", Version: "v1",
		Resource: "validatingadmissionpolicies"},
	"ValidatingAdmissionPolicyBinding": {Group: "admissionregistration.k8s.io", Version: "v1",
		Resource: "validatingadmissionpolicybindings"},
	"MutatingAdmissionPolicy": {Group: "admissionregistration.k8s.io", Version: "v1",
		Resource: "mutatingadmissionpolicies"},
	"MutatingAdmissionPolicyBinding": {Group: "admissionregistration.k8s.io", Version: "v1",
		Resource: "mutatingadmissionpolicybindings"},
}

// create sends an object, and describes the answer: the status, or the object without what differs in any two servers.
func (s side) create(ctx context.Context, o object, dryRun bool) string {
	s.warnings.texts = nil
	sent := (&unstructured.Unstructured{Object: o}).DeepCopy()
	var options metav1.CreateOptions
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	var client dynamic.ResourceInterface = s.Resource(resources[sent.GetKind()])
	if !strings.HasSuffix(sent.GetKind(), "Policy") && !strings.HasSuffix(sent.GetKind(), "Binding") {
		client = s.Resource(resources[sent.GetKind()]).Namespace("default")
	}
	got, err := client.Create(ctx, sent, options)
	if status := (*apierrors.StatusError)(nil); errors.As(err, &status) {
		return fmt.Sprintf("%d %s %s", status.ErrStatus.Code, status.ErrStatus.Reason, inOrder(status.ErrStatus.Message))
	}
	if err != nil {
		return err.Error()
	}
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(got.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(got.Object, "status")
	text, _ := json.MarshalIndent(got.Object, "", " ")
	return fmt.Sprintf("%s %q", text, s.warnings.texts)
}

// inOrder returns a message with its list of errors in order: kube-apiserver's order is random where it ranges over a
// map.
func inOrder(message string) string {
	return regexp.MustCompile(`\[(minimum|maximum|cpu max|memory max).*\]`).ReplaceAllStringFunc(message,
		func(list string) string {
			parts := strings.Split(strings.Trim(list, "[]"), ", m")
			slices.Sort(parts)
			return strings.Join(parts, ", m")
		})
}

// pick returns the first value, which is mostly a valid one, in two of three cases, or else any.
func pick[T any](r *rand.Rand, from ...T) T {
	if r.IntN(3) > 0 {
		return from[0]
	}
	return from[r.IntN(len(from))]
}

// maybe sets a field in one of n cases.
func maybe(r *rand.Rand, n int, o object, field string, value any) {
	if r.IntN(n) == 0 {
		o[field] = value
	}
}

var expressions = []string{"true", "object.metadata.name == 'x'", "object.", "'text'", "params.x",
	"params.data.x == 'y'", "variables.v == 1", "variables.w", " ",
	"authorizer.path('/healthz').check('get').allowed()", "request.userInfo.username != ''", "oldObject == null",
	"namespaceObject.metadata.name", "unknown",
	"has(object.spec) && object.spec.replicas > 3", "1 + 1", "[1,2].exists(x, x == 1)", "size(object.metadata.labels)",
	"'a' + object.metadata.name",
	"Object{metadata: Object.metadata{labels: {'a': 'b'}}}",
	"[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}]", "Object{spec: 1}"}

func matchResources(r *rand.Rand) object {
	rule := object{"operations": pick(r, list{"CREATE"}, list{"*"}, list{"*", "CREATE"}, list{"DELETE"}, list{"WRONG"},
		list{}, list{"CREATE", "UPDATE"}),
		"apiGroups": pick(r, list{""}, list{"*"}, list{"*", ""}, list{}), "apiVersions": pick(r, list{"v1"}, list{"*"},
			list{"*", "v1"}, list{""}, list{}),
		"resources": pick(r, list{"configmaps"}, list{"*"}, list{"*", "pods"}, list{"*/*"}, list{"*/*", "pods"},
			list{"pods/*", "pods/status"}, list{"*/status", "pods/status"}, list{""}, list{})}
	maybe(r, 4, rule, "scope", pick(r, "Cluster", "Namespaced", "*", "Wrong"))
	maybe(r, 4, rule, "resourceNames", pick(r, list{"a"}, list{"a", "a"}, list{"a/b"}))
	m := object{}
	maybe(r, 2, m, "resourceRules", list{rule})
	if r.IntN(4) > 0 {
		m["resourceRules"] = list{object{"operations": list{"CREATE"}, "apiGroups": list{""}, "apiVersions": list{"v1"},
			"resources": list{"configmaps"}}}
	}
	maybe(r, 8, m, "excludeResourceRules", list{rule})
	maybe(r, 4, m, "matchPolicy", pick(r, "Exact", "Equivalent", "Wrong"))
	maybe(r, 4, m, "namespaceSelector", pick(r, object{}, object{"matchLabels": object{"a": "b"}},
		object{"matchLabels": object{"a b": "c d"}},
		object{"matchExpressions": list{object{"key": "a", "operator": "Wrong"}}}))
	maybe(r, 6, m, "objectSelector", object{"matchExpressions": list{object{"key": "a", "operator": "In"}}})
	return m
}

// commonSpec has the fields of both kinds of policies.
func commonSpec(r *rand.Rand) object {
	spec := object{}
	maybe(r, 3, spec, "failurePolicy", pick(r, "Fail", "Ignore", "Wrong"))
	maybe(r, 3, spec, "paramKind", pick(r, object{"apiVersion": "v1", "kind": "ConfigMap"}, object{"apiVersion": "a/b/c",
		"kind": "X"}, object{"kind": "X Y"},
		object{"apiVersion": "A/V1", "kind": "X"}, object{"apiVersion": "example.com/v1"},
		object{"apiVersion": "example.com/", "kind": "X"}))
	if r.IntN(8) > 0 {
		spec["matchConstraints"] = matchResources(r)
	}
	maybe(r, 4, spec, "matchConditions", pick(r, list{object{"name": "a", "expression": pick(r, expressions...)}},
		list{object{"name": "a", "expression": "true"}, object{"name": "a", "expression": ""}},
		list{object{"name": "a b", "expression": pick(r, expressions...)}}, list{object{"expression": "true"}}))
	maybe(r, 3, spec, "variables", list{object{"name": pick(r, "v", "v", "for", " ", "v-v"), "expression": pick(r, "1",
		pick(r, expressions...))},
		object{"name": "w", "expression": "variables.v == 1"}})
	return spec
}

func validatingPolicy(r *rand.Rand) object {
	spec := commonSpec(r)
	validation := object{"expression": pick(r, expressions...)}
	maybe(r, 3, validation, "message", pick(r, "no", " ", "two\nlines"))
	maybe(r, 3, validation, "messageExpression", pick(r, expressions...))
	maybe(r, 3, validation, "reason", pick(r, "Forbidden", "Invalid", "Wrong", "Unauthorized", ""))
	if r.IntN(6) > 0 {
		spec["validations"] = list{validation}
	}
	maybe(r, 4, spec, "auditAnnotations", pick(r, list{object{"key": "a", "valueExpression": pick(r, expressions...)}},
		list{object{"key": "a", "valueExpression": "'x'"}, object{"key": "a", "valueExpression": "'y'"}},
		list{object{"key": "a b", "valueExpression": ""}}))
	return policy("ValidatingAdmissionPolicy", spec)
}

func mutatingPolicy(r *rand.Rand) object {
	spec := commonSpec(r)
	spec["reinvocationPolicy"] = pick(r, "Never", "Never", "IfNeeded", "Wrong", "")
	mutation := object{"patchType": pick(r, pick(r, "JSONPatch", "ApplyConfiguration"), "ApplyConfiguration", "Wrong", "")}
	fields := map[any]string{"JSONPatch": "jsonPatch", "ApplyConfiguration": "applyConfiguration"}
	if own := fields[mutation["patchType"]]; own != "" {
		mutation[own] = object{"expression": pick(r, pick(r, expressions[len(expressions)-3:len(expressions)-1]...),
			pick(r, expressions...))}
	}
	maybe(r, 8, mutation, "jsonPatch", object{"expression": pick(r, expressions...)})
	maybe(r, 8, mutation, "applyConfiguration", object{"expression": pick(r, expressions...)})
	if r.IntN(6) > 0 {
		spec["mutations"] = list{mutation}
	}
	return policy("MutatingAdmissionPolicy", spec)
}

func binding(r *rand.Rand) object {
	spec := object{"policyName": pick(r, "p", "p", "", "P p")}
	maybe(r, 2, spec, "matchResources", matchResources(r))
	ref := object{"parameterNotFoundAction": "Deny"}
	ref["name"] = pick(r, "a", "a/b", "")
	maybe(r, 5, ref, "selector", pick(r, object{}, object{"matchLabels": object{"a": "b c"}}))
	maybe(r, 3, ref, "parameterNotFoundAction", pick(r, "Allow", "", "Wrong"))
	maybe(r, 2, spec, "paramRef", ref)
	if r.IntN(2) == 0 {
		return policy("MutatingAdmissionPolicyBinding", spec)
	}
	spec["validationActions"] = pick(r, list{"Deny"}, list{"Deny", "Warn"}, list{"Warn", "Audit"}, list{"Deny", "Deny"},
		list{"Wrong"}, list{})
	return policy("ValidatingAdmissionPolicyBinding", spec)
}

func policy(kind string, spec object) object {
	return object{"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": object{"name": "x"},
		"spec": spec}
}

// compareAll compares the answers to random objects, which are not stored.
func compareAll(t *testing.T, sides []side, random *rand.Rand, draw func(*rand.Rand) object) {
	counts := map[string]int{}
	for step := range *stepsFlag {
		o := draw(random)
		want, got := sides[0].create(t.Context(), o, true), sides[1].create(t.Context(), o, true)
		counts[want[:3]]++
		if diff := cmp.Diff(want, got); diff != "" {
			sent, _ := json.Marshal(o)
			t.Errorf("step %d: %s (- kube-apiserver, + testserver):\n%s", step, sent, diff)
		}
	}
	t.Log(counts)
}

// The servers accept the same policies and bindings, with the same defaults, and refuse the others with the same
// messages.
func TestValidation(t *testing.T) {
	sides, random := newSides(t), newRandom(t)
	for _, draw := range []func(*rand.Rand) object{validatingPolicy, mutatingPolicy, binding} {
		compareAll(t, sides, random, draw)
	}
}

func quantity(r *rand.Rand) string {
	return pick(r, "0", "1", "100m", "500m", "1500m", "2", "10", "1Gi")
}

func quantities(r *rand.Rand) object {
	o := object{}
	maybe(r, 2, o, "cpu", quantity(r))
	maybe(r, 3, o, "memory", pick(r, "1Mi", "1Gi", "3Gi"))
	return o
}

func containers(r *rand.Rand, prefix string, atLeast int) list {
	all := list{}
	for i := range atLeast + r.IntN(2) {
		requests, limits := quantities(r), quantities(r)
		for name := range requests { // a valid pod requests at most its limit
			if limits[name] != nil {
				requests[name] = limits[name]
			}
		}
		c := object{"name": fmt.Sprint(prefix, i), "image": "i", "resources": object{"requests": requests, "limits": limits}}
		if prefix == "init" {
			maybe(r, 3, c, "restartPolicy", "Always")
		}
		all = append(all, c)
	}
	return all
}

// LimitRanges give the same defaults and refuse the same pods.
func TestLimitRanges(t *testing.T) {
	sides, random := newSides(t), newRandom(t)
	for round := range max(1, *stepsFlag/20) {
		items := list{}
		for range 1 + random.IntN(2) {
			item := object{"type": pick(random, "Container", "Container", "Pod")}
			low, high := pick(random, "100m", "0"), pick(random, "2", "10")
			maybe(random, 2, item, "min", object{"cpu": low})
			maybe(random, 2, item, "max", object{"cpu": high})
			maybe(random, 3, item, "maxLimitRequestRatio", object{"cpu": "4"})
			if item["type"] == "Container" {
				maybe(random, 3, item, "default", object{"cpu": "1500m", "memory": "1Gi"})
				maybe(random, 3, item, "defaultRequest", object{"cpu": "1"})
			}
			items = append(items, item)
		}
		limits := object{"apiVersion": "v1", "kind": "LimitRange", "metadata": object{"name": "limits"},
			"spec": object{"limits": items}}
		want, got := sides[0].create(t.Context(), limits, false), sides[1].create(t.Context(), limits, false)
		if strings.HasPrefix(want, "422") { // values of built-in kinds
			_ = sides[1].Resource(resources["LimitRange"]).Namespace("default").Delete(t.Context(), "limits",
				metav1.DeleteOptions{})
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("round %d: %v (- kube-apiserver, + testserver):\n%s", round, limits, diff)
		}
		for range 20 {
			pod := object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "pod"},
				"spec": object{"containers": containers(random, "c", 1), "initContainers": containers(random, "init", 0)}}
			want, got := sides[0].create(t.Context(), pod, true), sides[1].create(t.Context(), pod, true)
			if strings.HasPrefix(want, "422") {
				continue
			}
			if diff := cmp.Diff(want, got); diff != "" {
				sent, _ := json.Marshal(pod)
				t.Errorf("round %d, %v: %s (- kube-apiserver, + testserver):\n%s", round, items, sent, diff)
			}
		}
		for _, s := range sides {
			if err := s.Resource(resources["LimitRange"]).Namespace("default").Delete(t.Context(), "limits",
				metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			// The informers of both must have seen the end of the limits before the next round.
			time.Sleep(200 * time.Millisecond)
		}
	}
}

// Bound policies do the same to the same requests.
func TestDecisions(t *testing.T) {
	sides := newSides(t)
	configMaps := object{"resourceRules": list{object{"operations": list{"CREATE"}, "apiGroups": list{""},
		"apiVersions": list{"v1"}, "resources": list{"configmaps"}}}}
	configMap := func(name string, data object) object {
		return object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": name}, "data": data}
	}
	big := strings.Repeat("x", 900_000)
	for _, test := range []struct {
		name    string
		spec    object
		actions list
		ref     object
		mutates bool
	}{
		{name: "message", spec: object{"validations": list{object{"expression": "object.metadata.name != 'settled'",
			"message": "no"}}}},
		{name: "message expression",
			spec: object{"validations": list{object{"expression": "!object.metadata.name.startsWith('s')",
				"messageExpression": "'the name ' + object.metadata.name", "reason": "Forbidden"}}}},
		{name: "no message", spec: object{"validations": list{object{"expression": "object.data.size() > 100"}}}},
		{name: "error", spec: object{"validations": list{object{"expression": "object.data['missing'] == 'x'"}}}},
		{name: "ignored error", spec: object{"failurePolicy": "Ignore",
			"validations": list{object{"expression": "object.data['missing'] == 'x'"},
				object{"expression": "object.metadata.name != 'settled'"}}}},
		{name: "condition",
			spec: object{"matchConditions": list{object{"name": "s", "expression": "object.metadata.name.startsWith('s')"}},
				"validations": list{object{"expression": "false"}}}},
		{name: "failing condition",
			spec: object{"matchConditions": list{object{"name": "s", "expression": "object.data.missing == 'x'"}},
				"validations": list{object{"expression": "false"}}}},
		{name: "variables", spec: object{"variables": list{object{"name": "n", "expression": "object.metadata.name"}},
			"validations": list{object{"expression": "variables.n == 'big'", "reason": "RequestEntityTooLarge"}}}},
		{name: "warning", spec: object{"validations": list{object{"expression": "object.metadata.name != 'settled'",
			"message": "not so"}}}, actions: list{"Warn", "Audit"}},
		{name: "missing params", spec: object{"paramKind": object{"apiVersion": "v1", "kind": "ConfigMap"},
			"validations": list{object{"expression": "false"}}}, ref: object{"name": "none", "namespace": "default",
			"parameterNotFoundAction": "Deny"}},
		{name: "unknown params", spec: object{"paramKind": object{"apiVersion": "example.com/v1", "kind": "None"},
			"validations": list{object{"expression": "false"}}}, ref: object{"name": "none", "namespace": "default",
			"parameterNotFoundAction": "Allow"}},
		{name: "params", spec: object{"paramKind": object{"apiVersion": "v1", "kind": "ConfigMap"},
			"validations": list{object{"expression": "params.metadata.name == object.metadata.name"}}},
			ref: object{"selector": object{}, "namespace": "kube-system", "parameterNotFoundAction": "Deny"}},
		{name: "namespace",
			spec: object{"validations": list{object{"expression": "namespaceObject.metadata.name != 'default'",
				"messageExpression": "request.userInfo.groups[0] + namespaceObject.metadata.name"}}}},
		{name: "rights",
			spec: object{
				"validations": list{object{"expression": "!authorizer.group('').resource('pods').check('get').allowed()"}}}},
		{name: "apply", mutates: true, spec: object{"mutations": list{object{"patchType": "ApplyConfiguration",
			"applyConfiguration": object{
				"expression": "Object{metadata: Object.metadata{labels: Object.metadata.labels{a: 'b'}}}"}}}}},
		{name: "patch", mutates: true,
			spec: object{"mutations": list{object{"patchType": "JSONPatch",
				"jsonPatch": object{"expression": "[JSONPatch{op: 'add', path: '/data/added', value: 'yes'}]"}}}}},
		{name: "bad patch", mutates: true,
			spec: object{"mutations": list{object{"patchType": "JSONPatch",
				"jsonPatch": object{"expression": "[JSONPatch{op: 'remove', path: '/data/none'}]"}}}}},
		{name: "bad apply", mutates: true, spec: object{"mutations": list{object{"patchType": "ApplyConfiguration",
			"applyConfiguration": object{"expression": "Object{data: Object.data{immutable: 'x', a: object.data.missing}}"}}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			kind := "Validating"
			bound := object{"policyName": "x"}
			if test.mutates {
				kind = "Mutating"
				test.spec["reinvocationPolicy"] = "Never"
			} else if bound["validationActions"] = test.actions; test.actions == nil {
				bound["validationActions"] = list{"Deny"}
			}
			if test.ref != nil {
				bound["paramRef"] = test.ref
			}
			test.spec["matchConstraints"] = configMaps
			settled, plain := configMap("settled", object{"a": "b"}), make([]string, len(sides))
			for i, s := range sides {
				plain[i] = s.create(t.Context(), settled, true)
				for _, o := range []object{policy(kind+"AdmissionPolicy", test.spec), policy(kind+"AdmissionPolicyBinding",
					bound)} {
					if got := s.create(t.Context(), o, false); !strings.HasPrefix(got, "{") {
						t.Fatal(got)
					}
				}
				s.until(t, settled, func(answer string) bool {
					return answer != plain[i] &&
						!strings.Contains(answer, "not yet synced")
				})
			}
			for _, o := range []object{settled, configMap("other", object{"a": "b"}), configMap("big", object{"a": big}),
				configMap("none", nil)} {
				want, got := sides[0].create(t.Context(), o, true), sides[1].create(t.Context(), o, true)
				if want != got {
					if len(want)+len(got) > 20_000 {
						want, got = want[:min(len(want), 2000)], got[:min(len(got), 2000)]
					}
					t.Errorf("(- kube-apiserver, + testserver):\n%s", cmp.Diff(want, got))
				}
			}
			for i, s := range sides {
				for _, name := range []string{kind + "AdmissionPolicyBinding", kind + "AdmissionPolicy"} {
					if err := s.Resource(resources[name]).Delete(t.Context(), "x", metav1.DeleteOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				s.until(t, settled, func(answer string) bool { return answer == plain[i] })
			}
		})
	}
}

// until sends an object until the answer is as wanted.
func (s side) until(t *testing.T, o object, wanted func(string) bool) {
	t.Helper()
	for end := time.Now().Add(settleTimeout); ; time.Sleep(50 * time.Millisecond) {
		answer := s.create(t.Context(), o, true)
		if wanted(answer) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v; the last answer: %s", settleTimeout, answer)
		}
	}
}
