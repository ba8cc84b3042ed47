package operators_test

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/server/judge/operators"
)

const givenObjects = `
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: given, namespace: shop, labels: {widget: web}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: given, namespace: shop}}
`

// afterError is namedChild, and does something else when the server has failed.
func afterError(do func(context.Context, *controller) error) reconcile {
	return func(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
		err := namedChild(ctx, c, name, w)
		if apierrors.IsInternalError(err) {
			if failed := do(ctx, c); failed != nil {
				return failed
			}
		}
		return err
	}
}

// TestGivenObjects checks what an operator does to objects that were there before it, of a type that it writes in any
// case, and of one that it writes after an error only. With -short it is the first.
func TestGivenObjects(t *testing.T) {
	t.Parallel()
	type change = func(context.Context, *controller) error
	for i, c := range []struct {
		name string
		do   change
		want operators.Verdict // zero: none
	}{
		{"deletes one", func(ctx context.Context, c *controller) error {
			return c.configMaps().Delete(ctx, "given", metav1.DeleteOptions{})
		}, operators.Deleted},
		{"deletes a collection", func(ctx context.Context, c *controller) error {
			return c.configMaps().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "widget"})
		}, operators.Deleted},
		{"deletes one of another type", func(ctx context.Context, c *controller) error {
			return c.api.Resource(secrets).Namespace(namespace).Delete(ctx, "given", metav1.DeleteOptions{})
		}, operators.Deleted},
		{"changes one of another type", func(ctx context.Context, c *controller) error {
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}}
			o.SetName("given")
			o.SetLabels(map[string]string{"changed": "yes"})
			_, err := c.api.Resource(secrets).Namespace(namespace).Update(ctx, o, metav1.UpdateOptions{})
			return err
		}, operators.Diverged},
		{"creates and deletes another one", func(ctx context.Context, c *controller) error {
			o, api := loose("web", "note"), c.api.Resource(secrets).Namespace(namespace)
			o.SetKind("Secret")
			_, err := api.Create(ctx, o, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			return api.Delete(ctx, "note", metav1.DeleteOptions{})
		}, 0},
	} {
		if testing.Short() && i > 0 {
			break
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			once := false // in the only run of the only plan
			do := func(ctx context.Context, k *controller) error {
				if once {
					return nil
				}
				once = true
				return c.do(ctx, k)
			}
			report := bug{plan: "failing:1:create:configmaps:shop/web:1", files: 1}.judge(t, variant{do: afterError(do)},
				func(o *operators.Options) {
					impatient(o)
					o.CRDs = []string{write(t, map[string]string{"crd.yaml": definition + givenObjects})}
				})
			if c.want == 0 && len(report.Findings) > 0 || c.want != 0 && (len(report.Findings) == 0 ||
				!strings.Contains(describe(t, report), c.want.String()) || len(others(report, c.want)) > 0) {
				t.Error(describe(t, report))
			}
		})
	}
}
