// Package evictions compares evictions and bindings of pods by a test server with those by kube-apiserver: random pods
// and PodDisruptionBudgets, and after each request what was answered and what became of them.
package evictions

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/testserver"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	stepsFlag = flag.Int("evictions.steps", 600, "how many random requests to compare")
	seedFlag  = flag.Uint64("evictions.seed", 1, "draw requests as a run did that printed this seed; 0 draws anew")
)

func TestMain(m *testing.M) { peer.Main(m) }

// The servers answer alike, and the pods and budgets become the same.
func TestEvictions(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-evictions.seed %d", seed)
	s := newStory(t, rand.New(rand.NewPCG(seed, 7)))
	counts := map[string]int{}
	for step := range *stepsFlag {
		what, do := s.draw()
		answers := make([]string, len(s.sides))
		for i, server := range s.sides {
			answers[i] = describe(do(t.Context(), server))
		}
		counts[cut(what)+" "+cut(answers[0])]++
		if diff := cmp.Diff(answers[0], answers[1]); diff != "" {
			t.Errorf("step %d: %s (- kube-apiserver, + testserver):\n%s", step, what, diff)
		}
		if diff := cmp.Diff(s.sides[0].state(t), s.sides[1].state(t)); diff != "" {
			t.Fatalf("step %d: after %s (- kube-apiserver, + testserver):\n%s", step, what, diff)
		}
	}
	t.Logf("%v", counts)
	for _, kind := range []string{"evict success", "evict TooManyRequests", "evict NotFound", "evict Conflict",
		"bind success", "bind Conflict"} {
		if counts[kind] < *stepsFlag/200 {
			t.Errorf("too few of %q: %v", kind, counts)
		}
	}
}

func cut(text string) string {
	return regexp.MustCompile(`^\w*`).FindString(text)
}

// side is one of the two servers.
type side struct{ kubernetes.Interface }

// story is pods and budgets that exist, and how they change.
type story struct {
	random        *rand.Rand
	sides         []side
	pods, budgets []string
	serial        int
}

func newStory(t *testing.T, random *rand.Rand) *story {
	s := &story{random: random}
	for _, config := range []*rest.Config{peer.Kubernetes(t).Config(), testserver.New(t).Config()} {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		s.sides = append(s.sides, side{client})
	}
	return s
}

const home = "default"

// step does something on one server.
type step func(context.Context, side) error

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// draw returns a random step, and what it does.
func (s *story) draw() (string, step) {
	if len(s.pods) > 50 { // each step compares all
		return s.removePod()
	}
	r := s.random
	switch n := r.IntN(12); {
	case n < 3 || len(s.pods) < 3:
		return s.createPod()
	case n == 3 && len(s.budgets) < 5:
		return s.createBudget()
	case n == 4 && len(s.budgets) > 0:
		return s.writeStatus(pick(r, s.budgets...))
	case n == 5 && len(s.budgets) > 2:
		return s.deleteBudget()
	case n < 8:
		return s.bind()
	default:
		return s.evict()
	}
}

func (s *story) name(kind string) string {
	s.serial++
	return fmt.Sprintf("%s-%d", kind, s.serial)
}

// createPod creates a pod in a random phase.
func (s *story) createPod() (string, step) {
	r := s.random
	name := s.name("pod")
	s.pods = append(s.pods, name)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": pick(r, "a", "b", "c")}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if r.IntN(5) == 0 {
		pod.Finalizers = []string{"example.com/hold"}
	}
	if r.IntN(8) == 0 {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
	}
	phase := pick(r, corev1.PodRunning, corev1.PodRunning, corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded,
		corev1.PodFailed)
	ready := pick(r, corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse)
	return "create " + name, func(ctx context.Context, server side) error {
		created, err := server.CoreV1().Pods(home).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		created.Status.Phase = phase
		created.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		_, err = server.CoreV1().Pods(home).UpdateStatus(ctx, created, metav1.UpdateOptions{})
		return err
	}
}

// removePod removes the oldest pod, which may be gone or wait for a finalizer.
func (s *story) removePod() (string, step) {
	name := s.pods[0]
	s.pods = s.pods[1:]
	return "remove " + name, func(ctx context.Context, server side) error {
		_, err := server.CoreV1().Pods(home).Patch(ctx, name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err != nil {
			return err
		}
		none := int64(0)
		return server.CoreV1().Pods(home).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &none})
	}
}

func (s *story) createBudget() (string, step) {
	r := s.random
	name := s.name("budget")
	s.budgets = append(s.budgets, name)
	one := intstr.FromInt32(1)
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one}}
	if r.IntN(6) > 0 { // a budget without a selector selects nothing
		b.Spec.Selector = &metav1.LabelSelector{}
	}
	if r.IntN(8) > 0 && b.Spec.Selector != nil { // and one with an empty selector all pods
		b.Spec.Selector.MatchLabels = map[string]string{"app": pick(r, "a", "b", "c")}
	}
	if r.IntN(2) == 0 {
		policy := pick(r, policyv1.IfHealthyBudget, policyv1.AlwaysAllow)
		b.Spec.UnhealthyPodEvictionPolicy = &policy
	}
	return "create " + name, func(ctx context.Context, server side) error {
		_, err := server.PolicyV1().PodDisruptionBudgets(home).Create(ctx, b, metav1.CreateOptions{})
		return err
	}
}

// writeStatus writes a status as a controller does.
func (s *story) writeStatus(name string) (string, step) {
	r := s.random
	status := policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: pick(r, int64(0), 1, 1, 1), DisruptionsAllowed: pick(r, int32(0), 0, 1, 2, 3),
		CurrentHealthy: r.Int32N(4), DesiredHealthy: r.Int32N(4), ExpectedPods: 3,
	}
	if r.IntN(3) == 0 {
		status.Conditions = []metav1.Condition{{
			Type: policyv1.DisruptionAllowedCondition, Status: pick(r, metav1.ConditionTrue, metav1.ConditionFalse),
			Reason:  pick(r, policyv1.SyncFailedReason, policyv1.InsufficientPodsReason, policyv1.SufficientPodsReason),
			Message: pick(r, "", "a message"), LastTransitionTime: metav1.Now(),
		}}
	}
	return "status of " + name, func(ctx context.Context, server side) error {
		b, err := server.PolicyV1().PodDisruptionBudgets(home).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		b.Status = status
		_, err = server.PolicyV1().PodDisruptionBudgets(home).UpdateStatus(ctx, b, metav1.UpdateOptions{})
		return err
	}
}

func (s *story) deleteBudget() (string, step) {
	i := s.random.IntN(len(s.budgets))
	name := s.budgets[i]
	s.budgets = append(s.budgets[:i:i], s.budgets[i+1:]...)
	return "delete " + name, func(ctx context.Context, server side) error {
		return server.PolicyV1().PodDisruptionBudgets(home).Delete(ctx, name, metav1.DeleteOptions{})
	}
}

// somePod is mostly one that was created.
func (s *story) somePod() string {
	if s.random.IntN(15) == 0 {
		return "missing"
	}
	last := s.pods[max(0, len(s.pods)-12):]
	return pick(s.random, last...)
}

// evict evicts a pod. A bound one, which a kubelet would confirm, is evicted without grace.
func (s *story) evict() (string, step) {
	r := s.random
	name := s.somePod()
	none := int64(0)
	options := &metav1.DeleteOptions{GracePeriodSeconds: &none}
	if r.IntN(10) == 0 {
		options.DryRun = []string{metav1.DryRunAll}
	}
	precondition := r.IntN(10)
	inURL := name
	if r.IntN(30) == 0 {
		inURL = "other"
	}
	what := fmt.Sprintf("evict %s (dry run %v, precondition %d, URL %s)", name, options.DryRun, precondition, inURL)
	return what, func(ctx context.Context, server side) error {
		o := options.DeepCopy()
		pod, err := server.CoreV1().Pods(home).Get(ctx, name, metav1.GetOptions{})
		uid, version := types.UID("other"), "1"
		switch {
		case err != nil:
		case precondition == 0:
			// With a version, since servers repeat an eviction of another UID alone for ten seconds.
			o.Preconditions = &metav1.Preconditions{UID: &uid, ResourceVersion: &pod.ResourceVersion}
		case precondition == 1:
			o.Preconditions = &metav1.Preconditions{ResourceVersion: &version}
		case precondition == 2:
			o.Preconditions = &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
		}
		eviction := &policyv1.Eviction{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
			ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: name}, DeleteOptions: o}
		body, err := json.Marshal(eviction)
		if err != nil {
			return err
		}
		return server.CoreV1().RESTClient().Post().Namespace(home).Resource("pods").Name(inURL).SubResource("eviction").Body(
			body).
			SetHeader("Content-Type", "application/json").MaxRetries(0).Do(ctx).Error()
	}
}

func (s *story) bind() (string, step) {
	r := s.random
	b := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: s.somePod()},
		Target: corev1.ObjectReference{Kind: pick(r, "Node", "Node", "", "Pod"), Name: pick(r, "node", "node", "node",
			"")},
	}
	if r.IntN(3) == 0 {
		b.Annotations, b.Labels = map[string]string{"bound": "yes"}, map[string]string{"zone": "z"}
	}
	if r.IntN(6) == 0 {
		b.UID = "other"
	}
	if r.IntN(6) == 0 {
		b.ResourceVersion = "1"
	}
	legacy := r.IntN(3) == 0
	return fmt.Sprintf("bind %s to %+v (by bindings %v)", b.Name, b.Target, legacy), func(ctx context.Context,
		server side) error {
		if legacy {
			return server.CoreV1().RESTClient().Post().Namespace(home).Resource("bindings").Body(b).Do(ctx).Error()
		}
		return server.CoreV1().Pods(home).Bind(ctx, b, metav1.CreateOptions{})
	}
}

// describe returns an error with what clients see of it, except identities and versions, and "success" without one.
func describe(err error) string {
	if err == nil {
		return "success"
	}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return "no status: " + err.Error()
	}
	s := status.Status()
	text, _ := json.Marshal(s.Details)
	whole := fmt.Sprintf("%s %d: %s %s", s.Reason, s.Code, s.Message, text)
	whole = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}`).ReplaceAllString(whole, "UID")
	return regexp.MustCompile(`(record|meta:?|precondition:?) \(?\d+\)?`).ReplaceAllString(whole, "$1 VERSION")
}

// state is the pods and budgets of a server without identities, versions and times.
func (s side) state(t *testing.T) map[string]any {
	t.Helper()
	pods, err := s.CoreV1().Pods(home).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	budgets, err := s.PolicyV1().PodDisruptionBudgets(home).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	state := map[string]any{}
	for _, pod := range pods.Items {
		conditions := []string{}
		for _, c := range pod.Status.Conditions {
			conditions = append(conditions, fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message))
		}
		state[pod.Name] = []any{pod.Labels, pod.Annotations, pod.Finalizers, pod.DeletionTimestamp != nil, pod.Spec.NodeName,
			pod.Status.Phase, conditions}
	}
	for _, b := range budgets.Items {
		disrupted := map[string]bool{}
		for name := range b.Status.DisruptedPods {
			disrupted[name] = true
		}
		for i := range b.Status.Conditions {
			b.Status.Conditions[i].LastTransitionTime = metav1.Time{}
		}
		b.Status.DisruptedPods = nil
		state[b.Name] = []any{b.Status, disrupted}
	}
	return state
}
