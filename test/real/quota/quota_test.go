// Package quota compares ResourceQuotas, priorities and default tolerations of a test server with those of
// kube-apiserver and kube-controller-manager: random quotas and objects, and after each step what was answered, the
// pods, and the quotas' status, which must be what a model counts.
package quota

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/testserver"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	stepsFlag = flag.Int("quota.steps", 100, "how many random steps to compare")
	seedFlag  = flag.Uint64("quota.seed", 1, "draw steps as a run did that printed this seed; 0 draws anew")
)

const (
	home = "story"
	// settleTimeout bounds the wait for the controllers.
	settleTimeout = 3 * time.Minute
	// attempts is how often a step is repeated that was answered differently: kube-controller-manager computes a status
	// from informers that may lag, and corrects it at its next resync.
	attempts = 3
)

// controllers are those of kube-controller-manager that a test server has and whose objects count, and the one without
// which claims stay.
const controllers = "resourcequota-controller,serviceaccount-controller,root-ca-certificate-publisher-controller,persistentvolumeclaim-protection-controller"

func TestMain(m *testing.M) { peer.Main(m) }

// The servers answer alike, and the status of each quota becomes what the model counts.
func TestQuotas(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-quota.seed %d", seed)
	s := newStory(t, rand.New(rand.NewPCG(seed, 11)))
	repeated, counts := 0, map[string]int{}
	for number := range *stepsFlag {
		step := s.draw()
		answers := s.perform(t, step)
		for again := 1; answers[0] != answers[1] && step.undo != nil && again < attempts; again++ {
			repeated++
			for _, server := range s.sides {
				if err := step.undo(t.Context(), server); err != nil && !apierrors.IsNotFound(err) {
					t.Fatal(err)
				}
			}
			s.settle(t, fmt.Sprintf("step %d: undoing %s", number, step.what))
			answers = s.perform(t, step)
		}
		if diff := cmp.Diff(answers[0], answers[1]); diff != "" {
			t.Fatalf("step %d: %s (- kube-apiserver, + testserver):\n%s", number, step.what, diff)
		}
		counts[firstWord(step.what)+" "+outcome(answers[0])]++
		if answers[0] == success {
			step.done()
		}
		s.settle(t, fmt.Sprintf("step %d: %s", number, step.what))
		if diff := cmp.Diff(s.sides[0].pods(t), s.sides[1].pods(t)); diff != "" {
			t.Fatalf("step %d: the pods after %s (- kube-apiserver, + testserver):\n%s", number, step.what, diff)
		}
	}
	t.Logf("%d steps were repeated, %v", repeated, counts)
	if repeated > *stepsFlag/50+1 {
		t.Errorf("%d of %d steps were repeated", repeated, *stepsFlag)
	}
	for _, kind := range []string{"create success", "create exceeded", "create must specify", "create priority",
		"limit success", "delete success", "end success"} {
		if counts[kind] < *stepsFlag/100 {
			t.Errorf("too few of %q: %v", kind, counts)
		}
	}
}

func firstWord(text string) string { return regexp.MustCompile(`^\w*`).FindString(text) }

// outcome returns which of the refusals an answer is.
func outcome(answer string) string {
	for name, pattern := range map[string]string{
		"exceeded": "exceeded quota", "must specify": "must specify", "priority": "PriorityClass|PreemptionPolicy",
		"exists": "^AlreadyExists", "invalid": "^Invalid",
	} {
		if regexp.MustCompile(pattern).MatchString(answer) {
			return name
		}
	}
	if answer == success {
		return success
	}
	return "other"
}

// side is one of the two servers.
type side struct {
	kubernetes.Interface
	custom dynamic.ResourceInterface
}

// step is something to do on both servers. undo is nil if it cannot be repeated; done changes the model after success.
type step struct {
	what     string
	do, undo func(context.Context, side) error
	done     func()
}

// perform does a step on both servers, and returns the answers.
func (s *story) perform(t *testing.T, step step) (answers [2]string) {
	for i, server := range s.sides {
		answers[i] = describe(step.do(t.Context(), server))
	}
	// Of several quotas that refuse a request, kube-apiserver names a random one.
	real, ours := refusal.FindStringSubmatch(answers[0]), refusal.FindStringSubmatch(answers[1])
	if real != nil && ours != nil && real[2] != ours[2] {
		for i := range answers {
			answers[i] = refusal.ReplaceAllString(answers[i], "$1 a quota")
		}
	}
	return answers
}

// refusal is what a quota refuses: which check, and the quota's name.
var refusal = regexp.MustCompile(`(exceeded|failed) quota: ([\w-]+)[^{]*`)

const success = "success"

// describe returns an error with what clients see of it, and "success" without one.
func describe(err error) string {
	if err == nil {
		return success
	}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return "no status: " + err.Error()
	}
	s := status.Status()
	text, _ := json.Marshal(s.Details)
	return fmt.Sprintf("%s %d: %s %s", s.Reason, s.Code, s.Message, text)
}

func newStory(t *testing.T, random *rand.Rand) *story {
	s := &story{random: random, model: model{}}
	real := peer.LatestKubernetes(t)
	for i, config := range []*rest.Config{real.Config(), testserver.New(t).Config()} {
		s.sides = append(s.sides, newSide(t, config))
		if i == 0 { // it follows the custom resources that exist at its start
			peer.StartControllerManager(t, real, controllers, "--resource-quota-sync-period", "2s")
		}
	}
	s.model.add(&object{resource: "configmaps", name: "kube-root-ca.crt", uses: uses("configmaps", 1, "count/configmaps",
		1)})
	s.model.add(&object{resource: "serviceaccounts", name: "default", uses: uses("count/serviceaccounts", 1)})
	for _, server := range s.sides {
		wait(t, "the default objects of the namespace", func() string {
			_, err := server.CoreV1().ConfigMaps(home).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
			_, missing := server.CoreV1().ServiceAccounts(home).Get(t.Context(), "default", metav1.GetOptions{})
			if err := errors.Join(err, missing); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	return s
}

// newSide creates a namespace, priority classes and a definition on a server.
func newSide(t *testing.T, config *rest.Config) side {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	config.QPS = -1
	typed, err := kubernetes.NewForConfig(config)
	must(err)
	untyped, err := dynamic.NewForConfig(config)
	must(err)
	definitions, err := apiextensions.NewForConfig(config)
	must(err)
	server := side{typed, untyped.Resource(gears).Namespace(home)}
	_, err = typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}},
		metav1.CreateOptions{})
	must(err)
	for i := range classes {
		_, err = typed.SchedulingV1().PriorityClasses().Create(t.Context(), classes[i].DeepCopy(), metav1.CreateOptions{})
		must(err)
	}
	_, err = definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(),
		&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: gears.Resource + "." + gears.Group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: gears.Group, Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: gears.Resource, Kind: "Gear"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: gears.Version, Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object"}},
				}},
			},
		}, metav1.CreateOptions{})
	must(err)
	wait(t, "the custom resource", func() string {
		if _, err := server.custom.List(t.Context(), metav1.ListOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	return server
}

// wait polls until problem returns nothing.
func wait(t *testing.T, what string, problem func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleTimeout)
	defer cancel()
	for {
		p := problem()
		if p == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %s", what, p)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// settle waits until the status of each quota of each server is what the model counts.
func (s *story) settle(t *testing.T, what string) {
	t.Helper()
	want := map[string]any{}
	for _, l := range s.limits {
		want[l.name] = []any{values(l.hard), s.model.count(l)}
	}
	for i, server := range s.sides {
		wait(t, what, func() string {
			quotas, err := server.CoreV1().ResourceQuotas(home).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			got := map[string]any{}
			for _, q := range quotas.Items {
				got[q.Name] = []any{values(q.Status.Hard), values(q.Status.Used)}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				return fmt.Sprintf("server %d (- model, + server):\n%s", i, diff)
			}
			return ""
		})
	}
}

// values returns the quantities of a list in thousandths.
func values(list corev1.ResourceList) map[corev1.ResourceName]int64 {
	all := map[corev1.ResourceName]int64{}
	for name, quantity := range list {
		all[name] = quantity.MilliValue()
	}
	return all
}

// pods returns what admission has set in the pods.
func (s side) pods(t *testing.T) map[string]any {
	t.Helper()
	list, err := s.CoreV1().Pods(home).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	for _, pod := range list.Items {
		all[pod.Name] = []any{pod.Spec.Priority, pod.Spec.PriorityClassName, pod.Spec.PreemptionPolicy, pod.Spec.Tolerations,
			pod.Status.QOSClass, pod.Status.Phase}
	}
	return all
}

// object is one in the model.
type object struct {
	resource, name string
	uses           map[corev1.ResourceName]int64 // in thousandths
	// The others are of pods.
	terminating, bestEffort, ended bool
	class                          string
}

// uses returns a usage, given as names and whole numbers.
func uses(pairs ...any) map[corev1.ResourceName]int64 {
	used := map[corev1.ResourceName]int64{}
	for i := 0; i < len(pairs); i += 2 {
		used[corev1.ResourceName(pairs[i].(string))] = 1000 * int64(pairs[i+1].(int))
	}
	return used
}

// limit is a quota in the model.
type limit struct {
	name    string
	hard    corev1.ResourceList
	scope   corev1.ResourceQuotaScope
	classes *corev1.ScopedResourceSelectorRequirement
}

// model is the objects that exist, by resource and name.
type model map[string]*object

func (m model) add(o *object) { m[o.resource+"/"+o.name] = o }

func (m model) remove(o *object) { delete(m, o.resource+"/"+o.name) }

// of returns the objects of a resource, sorted by name.
func (m model) of(resource string) (all []*object) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if m[key].resource == resource {
			all = append(all, m[key])
		}
	}
	return all
}

// count returns what a quota must have in its status.
func (m model) count(l *limit) map[corev1.ResourceName]int64 {
	used := map[corev1.ResourceName]int64{}
	for name := range l.hard {
		used[name] = 0
	}
	for _, o := range m {
		for name, value := range o.uses {
			_, limited := used[name]
			if limited && l.covers(o) && (!o.ended || name == "count/pods") {
				used[name] += value
			}
		}
	}
	return used
}

// covers reports whether an object is in the scope of a quota.
func (l *limit) covers(o *object) bool {
	switch l.scope {
	case corev1.ResourceQuotaScopeTerminating:
		return o.terminating
	case corev1.ResourceQuotaScopeNotTerminating:
		return !o.terminating
	case corev1.ResourceQuotaScopeBestEffort:
		return o.bestEffort
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !o.bestEffort
	}
	if l.classes == nil {
		return true
	}
	switch listed := slices.Contains(l.classes.Values, o.class); l.classes.Operator {
	case corev1.ScopeSelectorOpIn:
		return listed
	case corev1.ScopeSelectorOpNotIn:
		return !listed
	case corev1.ScopeSelectorOpExists:
		return o.class != ""
	default:
		return o.class == ""
	}
}
