// Package validation compares which objects a test server refuses with those that kube-apiserver refuses: a table of
// objects and updates, and random changes of valid objects. Both servers get the same requests, and the status codes,
// reasons and causes of their answers are compared.
package validation

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

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/keepwatch/keepwatch/server/testserver"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	stepsFlag = flag.Int("validation.steps", 400, "how many random objects to compare")
	seedFlag  = flag.Uint64("validation.seed", 1, "draw objects as a run did that printed this seed; 0 draws anew")
)

func TestMain(m *testing.M) { peer.Main(m) }

// sides returns clients of kube-apiserver and of a test server.
func sides(t *testing.T) []*dynamic.DynamicClient {
	t.Helper()
	return clientsOf(t, peer.Kubernetes(t).Config(), testserver.New(t).Config())
}

// latestSides is sides with kube-apiserver of the version that the test server has: what may be changed, and the texts
// that refuse it, differ between versions.
func latestSides(t *testing.T) []*dynamic.DynamicClient {
	t.Helper()
	return clientsOf(t, peer.LatestKubernetes(t).Config(), testserver.New(t).Config())
}

func clientsOf(t *testing.T, configs ...*rest.Config) (both []*dynamic.DynamicClient) {
	t.Helper()
	for _, config := range configs {
		config.QPS = -1
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, client)
	}
	return both
}

// resources has the kinds of the table. Those of clusters have no namespace.
var resources = map[string]struct {
	schema.GroupVersionResource
	cluster bool
}{
	"ConfigMap":             {schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, false},
	"Secret":                {schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, false},
	"Service":               {schema.GroupVersionResource{Version: "v1", Resource: "services"}, false},
	"Pod":                   {schema.GroupVersionResource{Version: "v1", Resource: "pods"}, false},
	"PodTemplate":           {schema.GroupVersionResource{Version: "v1", Resource: "podtemplates"}, false},
	"ReplicationController": {schema.GroupVersionResource{Version: "v1", Resource: "replicationcontrollers"}, false},
	"Deployment": {schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		false},
	"ReplicaSet": {schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"},
		false},
	"StatefulSet": {schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"},
		false},
	"DaemonSet": {schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"},
		false},
	"Job": {schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}, false},
	"CronJob": {schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"},
		false},
	"ResourceQuota": {schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}, false},
	"LimitRange":    {schema.GroupVersionResource{Version: "v1", Resource: "limitranges"}, false},
	"Ingress": {schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1",
		Resource: "ingresses"}, false},
	"NetworkPolicy": {schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1",
		Resource: "networkpolicies"}, false},
	"HorizontalPodAutoscaler": {schema.GroupVersionResource{Group: "autoscaling", Version: "v2",
		Resource: "horizontalpodautoscalers"}, false},
	"PersistentVolume":      {schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}, true},
	"PersistentVolumeClaim": {schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}, false},
	"StorageClass": {schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1",
		Resource: "storageclasses"}, true},
	"RuntimeClass": {schema.GroupVersionResource{Group: "node.k8s.io", Version: "v1",
		Resource: "runtimeclasses"}, true},
	"CSIDriver": {schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1",
		Resource: "csidrivers"}, true},
	"EndpointSlice": {schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1",
		Resource: "endpointslices"}, false},
	"PodDisruptionBudget": {schema.GroupVersionResource{Group: "policy", Version: "v1",
		Resource: "poddisruptionbudgets"}, false},
	"Role": {schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1",
		Resource: "roles"}, false},
	"ClusterRole": {schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1",
		Resource: "clusterroles"}, true},
	"RoleBinding": {schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1",
		Resource: "rolebindings"}, false},
	"FlowSchema": {schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1",
		Resource: "flowschemas"}, true},
	"PriorityLevelConfiguration": {schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1",
		Resource: "prioritylevelconfigurations"}, true},
	"PriorityClass": {schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1",
		Resource: "priorityclasses"}, true},
	"APIService": {schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1",
		Resource: "apiservices"}, true},
	"ClusterRoleBinding": {schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1",
		Resource: "clusterrolebindings"}, true},
}

func client(d *dynamic.DynamicClient, kind string) dynamic.ResourceInterface {
	r := resources[kind]
	if r.cluster {
		return d.Resource(r.GroupVersionResource)
	}
	return d.Resource(r.GroupVersionResource).Namespace("default")
}

// object returns an object of a kind from the YAML of the rest, with a name unless it has one.
func object(t *testing.T, kind, name, content string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	raw, err := yaml.YAMLToJSON([]byte(content))
	if err == nil {
		err = json.Unmarshal(raw, &o.Object)
	}
	if err != nil {
		t.Fatalf("%s: %v", content, err)
	}
	o.SetAPIVersion(resources[kind].GroupVersion().String())
	o.SetKind(kind)
	if o.GetName() == "" {
		o.SetName(name)
	}
	return o
}

// answer is what is compared of an answer to a write. Causes are sorted, since some are in the order of a Go map, and
// each is there once: kube-apiserver repeats some. Values that are structs are masked: kube-apiserver writes them with
// the names of its internal types; those of immutable fields, of which v1.37 writes some as null; and so is the object
// of a patch that cannot be applied.
type answer struct {
	Code   int32
	Reason metav1.StatusReason
	Causes []string
}

func answerOf(t *testing.T, err error) (a answer) {
	t.Helper()
	if err == nil {
		return a
	}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		t.Fatal(err)
	}
	a.Code, a.Reason = status.Status().Code, status.Status().Reason
	if status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			message := masked(c.Message)
			if c.Field == "patch" {
				message = "…"
			}
			a.Causes = append(a.Causes, fmt.Sprintf("%s %s %s", c.Field, c.Type, message))
		}
	}
	slices.Sort(a.Causes)
	a.Causes = slices.Compact(a.Causes)
	return a
}

// masked returns a message without values that are structs, and without the difference of two pods.
func masked(message string) string {
	message, _, _ = strings.Cut(message, "\n")
	return masks.ReplaceAllString(message, "value: {…}")
}

var masks = regexp.MustCompile(`value: (.*: field is immutable$|\{.*\}|\[\{.*\}\])`)

var dry = []string{metav1.DryRunAll}

// Both servers answer each create and each update of the table alike, and the table says which ones are refused.
func TestTable(t *testing.T) {
	both := sides(t)
	for i, c := range cases {
		name := fmt.Sprintf("%s-%d", strings.ToLower(c.kind), i)
		var answers []answer
		for _, side := range both {
			objects := client(side, c.kind)
			created, err := objects.Create(t.Context(), object(t, c.kind, name, c.object), metav1.CreateOptions{})
			if c.change != "" {
				if err != nil {
					t.Fatalf("create %s %s: %v", c.kind, c.object, err)
				}
				changed := object(t, c.kind, name, c.change)
				changed.SetResourceVersion(created.GetResourceVersion())
				_, err = objects.Update(t.Context(), changed, metav1.UpdateOptions{})
			}
			answers = append(answers, answerOf(t, err))
		}
		if diff := cmp.Diff(answers[0], answers[1]); diff != "" {
			t.Errorf("%s %s %s (- kube-apiserver, + testserver):\n%s", c.kind, c.object, c.change, diff)
		}
		if got := len(answers[0].Causes); got != c.causes {
			t.Errorf("%s %s %s: kube-apiserver has %d causes, the table %d: %v", c.kind, c.object, c.change, got, c.causes,
				answers[0])
		}
	}
	if diff := cmp.Diff(changeMandatory(t, both[0]), changeMandatory(t, both[1])); diff != "" {
		t.Errorf("mandatory objects (- kube-apiserver, + testserver):\n%s", diff)
	}
}

// seeded returns the random numbers of a test, and logs their seed.
func seeded(t *testing.T, stream uint64) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-validation.seed %d", seed)
	return rand.New(rand.NewPCG(seed, stream))
}

// The test server refuses no random object that kube-apiserver accepts.
func TestRandomObjects(t *testing.T) {
	random := seeded(t, 5)
	both := sides(t)
	counts := map[string]int{}
	for step := range *stepsFlag {
		c := cases[random.IntN(len(cases))]
		o := object(t, c.kind, fmt.Sprintf("random-%d", step), c.object)
		for range 1 + random.IntN(2) {
			change(random, o.Object)
		}
		if o.GetName() == "" || o.GetKind() != c.kind {
			continue
		}
		real, own := create(t, both[0], o, c.kind), create(t, both[1], o, c.kind)
		switch {
		case real.Code == 0 && own.Code != 0:
			t.Errorf("step %d: only the test server refuses %v: %v", step, o.Object, own)
		case real.Code != 0 && own.Code == 0:
			counts["refused only by kube-apiserver"]++
			t.Logf("step %d: only kube-apiserver refuses %v: %v", step, o.Object, real)
		case real.Code != 0:
			counts["refused"]++
		default:
			counts["accepted"]++
		}
	}
	t.Logf("%v", counts)
	if counts["refused"] < *stepsFlag/10 || counts["accepted"] < *stepsFlag/10 {
		t.Errorf("too few of a kind: %v", counts)
	}
}

func create(t *testing.T, side *dynamic.DynamicClient, o *unstructured.Unstructured, kind string) answer {
	t.Helper()
	_, err := client(side, kind).Create(context.Background(), o.DeepCopy(), metav1.CreateOptions{DryRun: dry})
	return answerOf(t, err)
}

// change removes or replaces a random value in an object, or doubles a random entry of a list.
func change(r *rand.Rand, v map[string]any) {
	keys := slices.Sorted(func(yield func(string) bool) {
		for key := range v {
			if key != "apiVersion" && key != "kind" && key != "metadata" && !yield(key) {
				return
			}
		}
	})
	if len(keys) == 0 {
		return
	}
	key := keys[r.IntN(len(keys))]
	switch inner := v[key].(type) {
	case map[string]any:
		if r.IntN(4) > 0 && len(inner) > 0 {
			change(r, inner)
			return
		}
		delete(v, key)
	case []any:
		if len(inner) == 0 {
			delete(v, key)
			return
		}
		first, ok := inner[0].(map[string]any)
		switch {
		case ok && r.IntN(3) > 0:
			change(r, first)
		case r.IntN(2) == 0:
			v[key] = append(inner, inner[0])
		default:
			delete(v, key)
		}
	case string:
		v[key] = []any{"", "Unknown", "a", "-a", "101%", inner + "!"}[r.IntN(6)]
	case float64, int64:
		v[key] = []any{int64(-1), int64(0), int64(1), int64(65536)}[r.IntN(4)]
	default:
		delete(v, key)
	}
}
