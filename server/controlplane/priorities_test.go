package controlplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch/server/controlplane"
)

func newClass(name string, value int32, isDefault bool) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: isDefault}
}

// A new pod has the priority and preemption policy of its class, or of the default class, and keeps them.
func TestPriorities(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, controlplane.Options{}).RESTConfig())
	ctx, classes := t.Context(), c.typed.SchedulingV1().PriorityClasses()
	pods := c.typed.CoreV1().Pods(newNamespace(t, c))
	create := func(name string, change func(*corev1.PodSpec)) (string, error) {
		pod := podWith(name, corev1.ResourceRequirements{})
		change(&pod.Spec)
		created, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		return fmt.Sprint(created.Spec.PriorityClassName, *created.Spec.Priority, *created.Spec.PreemptionPolicy), nil
	}
	never := newClass("never", 7, false)
	never.PreemptionPolicy = new(corev1.PreemptNever)
	must(classes.Create(ctx, never, metav1.CreateOptions{}))(t)
	check := func(name, want string, change func(*corev1.PodSpec)) {
		t.Helper()
		if got, err := create(name, change); err != nil || got != want {
			t.Errorf("the pod %s has %q, want %q: %v", name, got, want, err)
		}
	}
	check("plain", "0PreemptLowerPriority", func(*corev1.PodSpec) {})
	check("named", "never7Never", func(s *corev1.PodSpec) { s.PriorityClassName = "never" })
	check("equal", "never7Never", func(s *corev1.PodSpec) { s.PriorityClassName, s.Priority = "never", new(int32(7)) })
	check("system", "system-node-critical2000001000PreemptLowerPriority", func(s *corev1.PodSpec) {
		s.PriorityClassName = "system-node-critical"
	})
	for want, change := range map[string]func(*corev1.PodSpec){
		"no PriorityClass with name missing was found": func(s *corev1.PodSpec) { s.PriorityClassName = "missing" },
		"the integer value of priority (8) must not be provided in pod spec; priority admission controller computed 7 from the given PriorityClass name": func(s *corev1.PodSpec) {
			s.PriorityClassName, s.Priority = "never", new(int32(8))
		},
		"the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name": func(s *corev1.PodSpec) {
			s.PreemptionPolicy = new(corev1.PreemptNever)
		},
	} {
		if _, err := create("refused", change); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("the pod is answered with %v, want %s", err, want)
		}
	}

	must(classes.Create(ctx, newClass("usual", 5, true), metav1.CreateOptions{}))(t)
	check("default", "usual5PreemptLowerPriority", func(*corev1.PodSpec) {})
	_, err := classes.Create(ctx, newClass("second", 6, true), metav1.CreateOptions{})
	if want := "PriorityClass usual is already marked as default. Only one default can exist"; !apierrors.IsForbidden(
		err) || !strings.Contains(err.Error(), want) {
		t.Errorf("a second default class is answered with %v", err)
	}
	must(classes.Patch(ctx, "usual", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
		metav1.PatchOptions{}))(t)
	plain := must(pods.Get(ctx, "plain", metav1.GetOptions{}))(t)
	plain.Spec.Priority, plain.Spec.PreemptionPolicy, plain.Spec.Containers[0].Image = nil, nil, "other"
	if plain = must(pods.Update(ctx, plain, metav1.UpdateOptions{}))(t); plain.Spec.Priority == nil ||
		*plain.Spec.Priority != 0 || plain.Spec.PreemptionPolicy == nil {
		t.Errorf("the updated pod has the priority %v and the policy %v", plain.Spec.Priority, plain.Spec.PreemptionPolicy)
	}
}

// A start creates the system's classes, and keeps them as they are. Nobody creates others with their prefix or above
// them.
func TestSystemPriorityClasses(t *testing.T) {
	t.Parallel()
	options := controlplane.Options{DataDir: t.TempDir()}
	first := start(t, options)
	classes := connect(t, first.RESTConfig()).typed.SchedulingV1().PriorityClasses()
	if err := classes.Delete(t.Context(), "system-node-critical", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	must(classes.Patch(t.Context(), "system-cluster-critical", types.MergePatchType, []byte(`{"description":"other"}`),
		metav1.PatchOptions{}))(t)
	for want, class := range map[string]*schedulingv1.PriorityClass{
		"system-own is not a known system priority class":                newClass("system-own", 1, false),
		"value of system-node-critical PriorityClass must be 2000001000": newClass("system-node-critical", 1, false),
		"globalDefault of system-node-critical PriorityClass must be false": newClass("system-node-critical", 2000001000,
			true),
		"maximum allowed value of a user defined priority is 1000000000": newClass("high", 1000000001, false),
	} {
		if _, err := classes.Create(t.Context(), class, metav1.CreateOptions{}); !apierrors.IsInvalid(err) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("the class is answered with %v, want %s", err, want)
		}
	}
	first.stop()
	classes = connect(t, start(t, options).RESTConfig()).typed.SchedulingV1().PriorityClasses()
	var found []string
	for _, class := range must(classes.List(t.Context(), metav1.ListOptions{}))(t).Items {
		found = append(found, fmt.Sprint(class.Name, " ", class.Value, " ", *class.PreemptionPolicy, " ", class.Description))
	}
	if want := []string{
		"system-cluster-critical 2000000000 PreemptLowerPriority other",
		"system-node-critical 2000001000 PreemptLowerPriority Used for system critical pods that must not be moved from their current node.",
	}; !slices.Equal(found, want) {
		t.Errorf("the classes are %q, want %q", found, want)
	}
}

// A new pod tolerates nodes that are not ready or unreachable for five minutes, unless it says how.
func TestDefaultTolerations(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	pods := c.typed.CoreV1().Pods(newNamespace(t, c))
	const notReady, unreachable = "node.kubernetes.io/not-ready:NoExecute 300", "node.kubernetes.io/unreachable:NoExecute 300"
	for i, test := range []struct {
		given []corev1.Toleration
		want  []string
	}{
		{nil, []string{notReady, unreachable}},
		{[]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, []string{": 0"}},
		{[]corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists}},
			[]string{"node.kubernetes.io/unreachable: 0", notReady}},
		{[]corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoSchedule}},
			[]string{"node.kubernetes.io/not-ready:NoSchedule 0", notReady, unreachable}},
	} {
		pod := podWith(fmt.Sprint("pod-", i), corev1.ResourceRequirements{})
		pod.Spec.Tolerations = test.given
		var got []string
		for _, toleration := range must(pods.Create(t.Context(), pod, metav1.CreateOptions{}))(t).Spec.Tolerations {
			seconds := int64(0)
			if toleration.TolerationSeconds != nil {
				seconds = *toleration.TolerationSeconds
			}
			got = append(got, fmt.Sprintf("%s:%s %d", toleration.Key, toleration.Effect, seconds))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("with %v, the pod has %q, want %q", test.given, got, test.want)
		}
	}
}
