package operators_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/server/judge/operators"
)

// curious lists Secrets, which its roles do not allow, before it does its work.
func curious(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	if name != atStart {
		_, err := c.api.Resource(secrets).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			return errors.Join(errors.New("Secrets can be listed"), err)
		}
	}
	return namedChild(ctx, c, name, w)
}

// TestRefusedWithoutFault checks that a right that is always missing is one finding, and none of each plan.
func TestRefusedWithoutFault(t *testing.T) {
	t.Parallel()
	b := bug{files: 1, plan: "crash-after-write", roles: true}
	report := b.judge(t, variant{do: curious}, func(*operators.Options) {})
	if len(report.Findings) != 1 || report.Findings[0].Plan != nil || report.Findings[0].Verdict != operators.Forbidden ||
		len(report.Results) == 0 {
		t.Error(describe(t, report))
	}
}

// loops are operators that ask again and again, and never write.
var loops = map[string]reconcile{
	"what is refused": func(ctx context.Context, c *controller, name string, _ *unstructured.Unstructured) error {
		_, err := c.api.Resource(secrets).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			return err
		}
		c.queue.AddAfter(name, 5*time.Millisecond)
		return nil
	},
	"for a watch": func(ctx context.Context, c *controller, name string, _ *unstructured.Unstructured) error {
		watch, err := c.widgetsAPI().Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		watch.Stop()
		c.queue.AddAfter(name, 5*time.Millisecond)
		return nil
	},
}

// TestLoops checks that an operator is not quiet that asks again and again for what is refused, or for watches.
func TestLoops(t *testing.T) {
	t.Parallel()
	for name, do := range loops {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := bug{files: 1, plan: "none", roles: true}.judge(t, variant{do: do}, func(o *operators.Options) {
				o.Quiet = time.Second // in which it asks five times, however slow the machine is
				o.Patience = 3 * time.Second
			})
			restless := func(f operators.Finding) bool { return f.Verdict == operators.Restless }
			if !slices.ContainsFunc(report.Findings, restless) || report.Stopped == "" {
				t.Error(describe(t, report))
			}
		})
	}
}

// exitsOnce exits when it has created a child, and goes on when it is started again.
func exitsOnce(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	_, err := c.configMaps().Get(ctx, name, metav1.GetOptions{})
	if end := namedChild(ctx, c, name, w); end != nil || w == nil || !apierrors.IsNotFound(err) {
		return end
	}
	return fatal{errors.New("it wants to be started again")}
}

// TestExpectedExit checks that plans are judged of an operator that is expected to exit by itself, and of no other.
func TestExpectedExit(t *testing.T) {
	t.Parallel()
	judged := func(expected ...operators.Expectation) *operators.Report {
		return bug{files: 1, plan: "conflict"}.judge(t, variant{do: exitsOnce}, func(o *operators.Options) {
			o.Plans, o.Expected = []string{"lost-answer:1"}, expected
		})
	}
	report := judged(operators.Expectation{Verdict: "died", Reason: "it wants to"})
	if len(report.Unexpected()) > 0 || report.Stopped != "" || len(report.Results) != 1 {
		t.Error(report.Stopped, describe(t, report))
	}
	if report := judged(); report.Stopped == "" || len(report.Results) > 0 {
		t.Error(describe(t, report))
	}
}
