package operators_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"

	"github.com/keepwatch/keepwatch/server/judge/operators"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// shape is a correct operator that goes about its work in another way than the twins of the bugs.
type shape struct {
	name     string
	do       reconcile
	workload map[string]string // default: the first two files
	plans    []string
	reached  []string // kinds with a plan whose place was reached
}

const child = "apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: shop}"

var shapes = []shape{
	{
		name: "server-side apply", do: appliedChild,
		plans:   []string{"foreign-edit", "foreign-delete", "foreign-annotation", "crash-after-write", "conflict"},
		reached: []string{"foreign-edit", "foreign-delete", "foreign-annotation"},
	},
	{
		name: "a namespace of its own", do: tenant,
		plans:   []string{"foreign-edit", "foreign-delete", "namespace-gone"},
		reached: []string{"foreign-edit", "foreign-delete"},
	},
	{
		name: "a workload that changes what the operator has made", do: namedChild,
		workload: map[string]string{
			"1-create.yaml":       wholeWorkload["1-create.yaml"],
			"2-child.patch.yaml":  "{" + child + ", data: {by: somebody}}",
			"3-child.delete.yaml": "{" + child + "}",
		},
		plans: []string{"unobserved", "delayed", "downtime"}, reached: []string{"delayed", "downtime"},
	},
	{
		name: "a watch that begins when it is needed", do: templated,
		plans: []string{"crash-after-write"}, reached: []string{"crash-after-write"},
	},
}

// TestShapes checks that correct operators have no finding, whatever requests they make, and whatever the workload
// does. With -short it is two of them.
func TestShapes(t *testing.T) {
	t.Parallel()
	for i, s := range shapes {
		if testing.Short() && i >= 2 {
			break
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			report := bug{files: 2}.judge(t, variant{do: s.do}, func(o *operators.Options) {
				o.Plans = s.plans
				if s.workload != nil {
					o.Workload = write(t, s.workload)
				}
			})
			reached := func(kind string) bool {
				return slices.ContainsFunc(report.Results, func(r operators.Result) bool {
					return r.Plan.Kind == kind && r.Reached
				})
			}
			for _, kind := range s.reached {
				if !reached(kind) {
					t.Errorf("no plan %s was reached", kind)
				}
			}
			if len(report.Findings) > 0 || t.Failed() {
				t.Error(describe(t, report))
			}
		})
	}
}

// appliedChild has a ConfigMap with the size of its Widget, by server-side apply.
func appliedChild(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	if w == nil || w.GetDeletionTimestamp() != nil {
		return nil
	}
	_, err := c.configMaps().Apply(ctx, name, sized(w), metav1.ApplyOptions{FieldManager: "operator", Force: true})
	return err
}

// templated makes a child by what it reads from a cache of Secrets, which is filled when it is read first: an instance
// that finds the child has one watch less.
func templated(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	if w != nil && c.cachedConfig(name) == nil && c.get("secrets") == "" {
		c.set("secrets", "cached")
		informers := dynamicinformer.NewDynamicSharedInformerFactory(c.api, 0)
		informers.ForResource(secrets).Informer()
		informers.Start(ctx.Done())
		informers.WaitForCacheSync(ctx.Done())
	}
	return namedChild(ctx, c, name, w)
}

// tenant has a namespace with the size of its Widget as a label, and a ConfigMap in it.
func tenant(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	if w == nil || w.GetDeletionTimestamp() != nil {
		return nil
	}
	spaces, space := c.api.Resource(namespaces), "tenant-"+name
	have, err := spaces.Get(ctx, space, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		o := loose(name, space)
		o.SetKind("Namespace")
		have, err = spaces.Create(ctx, o, metav1.CreateOptions{})
	case err == nil && have.GetDeletionTimestamp() != nil:
		err = errors.New("the namespace is being deleted")
	}
	if err != nil {
		return err
	}
	if labels := have.GetLabels(); labels["size"] != size(w) {
		labels["size"] = size(w)
		have.SetLabels(labels)
		if _, err := spaces.Update(ctx, have, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	_, err = c.api.Resource(configs).Namespace(space).Create(ctx, loose(name, name), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// TestDryRuns checks that what changes nothing is no write.
func TestDryRuns(t *testing.T) {
	t.Parallel()
	careful := func(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
		if w == nil || w.GetDeletionTimestamp() != nil {
			return nil
		}
		dry := []string{metav1.DryRunAll}
		_, err := c.configMaps().Create(ctx, config(w, name), metav1.CreateOptions{DryRun: dry})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if err := namedChild(ctx, c, name, w); err != nil {
			return err
		}
		return c.configMaps().Delete(ctx, name, metav1.DeleteOptions{DryRun: dry})
	}
	report := bug{files: 1, plan: "none"}.judge(t, variant{do: careful}, func(*operators.Options) {})
	for _, p := range report.Places {
		if p.Verb == "delete" {
			t.Errorf("%v is a place", p)
		}
	}
	if len(report.Places) == 0 || len(report.Findings) > 0 {
		t.Error(describe(t, report))
	}
}

// TestChance checks that a difference is no finding that more runs without a fault show, too.
func TestChance(t *testing.T) {
	t.Parallel()
	report := bug{files: 1, plan: "crash-after-write"}.judge(t, variant{do: coin}, impatient)
	if len(report.Results) == 0 || len(report.Findings) > 0 {
		t.Error(describe(t, report))
	}
}

// TestReadyAtOnce checks that pods are ready in the step that creates them, whatever delay their probes have.
func TestReadyAtOnce(t *testing.T) {
	t.Parallel()
	const deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, "
	report := bug{plan: "none"}.judge(t, variant{do: nothing}, func(o *operators.Options) {
		o.Simulate = true
		o.Workload = write(t, map[string]string{
			"1-create.yaml": deployment + "spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, " +
				"spec: {containers: [{name: web, image: web, readinessProbe: {initialDelaySeconds: 3600, exec: {command: [a]}}}]}}}}",
			"2-ready.wait.yaml": deployment + "status: {readyReplicas: 1}}",
		})
	})
	if len(report.Findings) > 0 {
		t.Error(describe(t, report))
	}
}

// TestAdvance checks that a step moves the time of simulated workloads, and that a workload waits for what comes of it.
func TestAdvance(t *testing.T) {
	t.Parallel()
	const job = "{apiVersion: batch/v1, kind: Job, metadata: {name: backup, namespace: shop}, "
	report := bug{plan: "none"}.judge(t, variant{do: nothing}, func(o *operators.Options) {
		o.Simulate = true
		o.Workload = write(t, map[string]string{
			"1-create.yaml": job + "spec: {template: {metadata: {annotations: {simulation.keepwatch.io/run-for: 100h}}, " +
				"spec: {restartPolicy: Never, containers: [{name: backup, image: backup}]}}}}",
			"2-runs.wait.yaml": job + "status: {ready: 1}}",
			"3-done.advance":   "100h\n",
			"4-done.wait.yaml": job + "status: {succeeded: 1}}",
		})
	})
	if len(report.Findings) > 0 || len(report.Steps) != 4 {
		t.Error(describe(t, report))
	}
}

// TestAdvanceOfRealTime checks that time is moved only with the simulation.
func TestAdvanceOfRealTime(t *testing.T) {
	t.Parallel()
	_, err := operators.Run(t.Context(), operators.Options{
		Operator: operators.Operator{Start: start(variant{do: nothing})},
		CRDs:     []string{write(t, map[string]string{"crd.yaml": definition})},
		Workload: write(t, map[string]string{"1-later.advance": "1h"}),
		Quiet:    2 * longestRetry, Plans: []string{"none"},
	})
	if err == nil || !strings.Contains(err.Error(), "1-later.advance: time is advanced only with simulated workloads") {
		t.Error(err)
	}
}

// ready sets a status some time after it has seen a Widget, and gives up if the write is refused.
func ready(after time.Duration) reconcile {
	return func(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
		if w == nil || status(w, "phase") != "" || c.get("refused") != "" {
			return nil
		}
		if c.get("seen") == "" {
			c.set("seen", "yes")
			time.AfterFunc(after, func() {
				c.set("late", "yes")
				c.queue.Add(name)
			})
		}
		if c.get("late") == "" {
			return nil
		}
		err := c.setStatus(ctx, w, "phase", "Ready")
		if apierrors.IsForbidden(err) {
			c.set("refused", "yes")
			return nil
		}
		return err
	}
}

// TestUnfulfilledWait checks that an operator is not as it should be if what a step waits for does not come after a
// fault. If the machine is so slow that the operator is not taken for quiet before it writes, it writes later.
func TestUnfulfilledWait(t *testing.T) {
	t.Parallel()
	const wait = "2-ready.wait.yaml"
	for after := 4 * longestRetry; ; after *= 2 {
		report := bug{plan: "forbidden"}.judge(t, variant{do: ready(after)}, func(o *operators.Options) {
			o.Workload = write(t, map[string]string{
				"1-create.yaml": wholeWorkload["1-create.yaml"],
				wait: "{apiVersion: example.com/v1, kind: Widget, metadata: {name: web, namespace: shop}, " +
					"status: {phase: Ready}}",
			})
			o.Hurry(4 * after)
		})
		late := func(r operators.Result) bool { return r.Plan.Place.Step == 2 && r.Reached }
		if len(report.Places) != 1 || !slices.ContainsFunc(report.Results, late) {
			t.Logf("with a status %v late, the writes are %v and %v: %v", after, report.Places, report.Uneven, report.Results)
			continue
		}
		found := report.Findings
		if len(found) != 1 || found[0].Verdict != operators.Diverged ||
			!slices.ContainsFunc(found[0].Facts, func(f string) bool { return strings.Contains(f, "what "+wait+" waits for") }) {
			t.Error(describe(t, report))
		}
		return
	}
}
