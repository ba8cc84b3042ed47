package operators_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/server/judge/operators"
)

// variant is an operator with a bug, or its correct twin.
type variant struct {
	do      reconcile
	also    events
	next    *variant // takes over
	insists bool     // exits if the server does not know Widgets
	breaks  bool     // its writes pass a breaker
	near    bool     // its caches have the namespace of the Widgets only
}

// bug is a mistake of real operators.
type bug struct {
	name    string
	plan    string // that shows it
	files   int    // of the workload that it needs
	verdict operators.Verdict
	buggy   variant
	correct variant
	roles   bool // it runs with roles
	alone   bool // no other kind of plans finds it
}

var bugs = []bug{
	{
		name: "a second child after a lost answer", plan: "lost-answer:1", files: 1, verdict: operators.Duplicated,
		buggy: variant{do: generatedChild(func(*controller, string) bool { return false })}, correct: variant{do: namedChild},
	},
	{
		name: "a second child by a stale cache", plan: "stale-restart:1", files: 1, verdict: operators.Duplicated,
		buggy:   variant{do: generatedChild(func(c *controller, name string) bool { return c.cachedConfigs(name) > 0 })},
		correct: variant{do: namedChild},
	},
	{
		name: "a forgotten finalizer", plan: "crash-after-write", files: 3, verdict: operators.Leaked,
		buggy: variant{do: finalized(false)}, correct: variant{do: finalized(true)},
	},
	{
		name: "a finalizer that keeps a namespace", plan: "namespace-gone", files: 2, verdict: operators.Leaked,
		buggy: variant{do: finalized(false)}, correct: variant{do: finalized(true)},
	},
	{
		name: "a finalizer that comes after the child", plan: "owner-gone", files: 3, verdict: operators.Leaked, alone: true,
		buggy: variant{do: guarded(false)}, correct: variant{do: guarded(true)},
	},
	{
		name: "an exit without a definition", plan: "definition-gone", files: 1, verdict: operators.Died, alone: true,
		buggy: variant{do: namedChild, insists: true}, correct: variant{do: namedChild},
	},
	{
		name: "a child of the last version", plan: "upgraded:1", files: 1, verdict: operators.Duplicated, alone: true,
		buggy:   variant{do: namedChild, next: &variant{do: renamedChild(false)}},
		correct: variant{do: namedChild, next: &variant{do: renamedChild(true)}},
	},
	{
		name: "a hot loop while a child is being deleted", plan: "foreign-finalizer", files: 3, verdict: operators.Restless,
		alone: true,
		buggy: variant{do: deletesFirst(true)}, correct: variant{do: deletesFirst(false)},
	},
	{
		name: "a child that nobody misses", plan: "foreign-delete", files: 1, verdict: operators.Diverged,
		buggy: variant{do: password(true)}, correct: variant{do: namedChild},
	},
	{
		name: "a child that is not the one that was created", plan: "foreign-recreate", files: 2, verdict: operators.Diverged,
		alone: true,
		buggy: variant{do: expecting}, correct: variant{do: resized},
	},
	{
		name: "a fight with an annotation", plan: "foreign-annotation", files: 2, verdict: operators.Fighting, alone: true,
		buggy: variant{do: replaced}, correct: variant{do: namedChild},
	},
	{
		name: "a size of old", plan: "time-travel", files: 2, verdict: operators.Stale,
		buggy: variant{do: resized}, correct: variant{do: resizedOnce},
	},
	{
		name: "a clean-up that deletes an object of somebody else", plan: "failing:6:create:configmaps:shop/web:1", files: 6,
		verdict: operators.Deleted,
		buggy:   variant{do: cleanUpAfterError}, correct: variant{do: namedChild},
	},
	{
		name: "an operator that gives up", plan: "outage", files: 1, verdict: operators.Diverged, alone: true,
		buggy: variant{do: givesUp}, correct: variant{do: namedChild},
	},
	{
		name: "a second child by a late event", plan: "delayed", files: 2, verdict: operators.Duplicated, alone: true,
		buggy: variant{do: childOfGeneration(true)}, correct: variant{do: childOfGeneration(false)},
	},
	{
		name: "the status before the deed", plan: "crash-after-write:1", files: 1, verdict: operators.Diverged,
		buggy: variant{do: statusFirst}, correct: variant{do: namedChild},
	},
	{
		name: "a deletion by a stale list", plan: "time-travel:1", files: 1, verdict: operators.Deleted,
		buggy: variant{do: looseChild(false)}, correct: variant{do: looseChild(true)},
	},
	{
		name: "a deletion by a stale list, of a child with a generated name", plan: "time-travel:1", files: 1,
		verdict: operators.Deleted,
		buggy:   variant{do: looseGenerated(false)}, correct: variant{do: looseGenerated(true)},
	},
	{
		name: "a deletion by a stale list, beside a name that the garbage collector has removed", files: 4,
		plan: "time-travel:4:create:configmaps:shop/web-*:1", verdict: operators.Deleted,
		buggy: variant{do: ownedGenerated(false)}, correct: variant{do: ownedGenerated(true)},
	},
	{
		name: "a hot loop after a conflict", plan: "conflict", files: 2, verdict: operators.Restless,
		buggy: variant{do: loopAfterConflict}, correct: variant{do: resized},
	},
	{
		name: "a child that is deleted in an event only", plan: "downtime", files: 3, verdict: operators.Leaked,
		buggy: variant{do: looseUntilEvent, also: deleteInEvent}, correct: variant{do: namedChild},
	},
	{
		name: "a child in another namespace", plan: "downtime", files: 3, verdict: operators.Leaked,
		buggy: variant{do: distant(false), near: true}, correct: variant{do: distant(true)},
	},
	{
		name: "a deletion that only a list shows", plan: "expired", files: 3, verdict: operators.Leaked,
		buggy: variant{do: looseUntilEvent, also: deleteInSeenEvent}, correct: variant{do: looseChild(true)},
	},
	{
		name: "a fight with a default", plan: "none", files: 1, verdict: operators.Restless,
		buggy: variant{do: defaulted(false)}, correct: variant{do: defaulted(true)},
	},
	{
		name: "a breaker that stays open", plan: "throttled:1", files: 1, verdict: operators.Diverged,
		alone: true,
		buggy: variant{do: namedChild, breaks: true}, correct: variant{do: namedChild},
	},
	{
		name: "a server that is taken for gone", plan: "unavailable:1", files: 1, verdict: operators.Diverged,
		alone: true,
		buggy: variant{do: leavesUnavailable}, correct: variant{do: namedChild},
	},
	{
		name: "a second child after a timeout", plan: "timeout:1", files: 1, verdict: operators.Duplicated,
		buggy: variant{do: generatedChild(func(*controller, string) bool { return false })}, correct: variant{do: namedChild},
	},
	{
		name: "a second child after a crash before the answer", plan: "crash-unanswered-write:1", files: 1,
		verdict: operators.Duplicated,
		buggy:   variant{do: generatedChild(func(*controller, string) bool { return false })},
		correct: variant{do: namedChild},
	},
	{
		name: "the status before a deed that does not arrive", plan: "crash-before-write:2", files: 1,
		verdict: operators.Diverged,
		buggy:   variant{do: statusFirst}, correct: variant{do: namedChild},
	},
	{
		name: "an intermediate state that is needed", plan: "unobserved:3", files: 4, verdict: operators.Diverged,
		buggy: variant{do: nothing, also: createInEvent}, correct: variant{do: namedChild},
	},
	{
		name: "a password lost between two writes", plan: "crash-after-write:1", files: 1, verdict: operators.Diverged,
		buggy: variant{do: password(false)}, correct: variant{do: password(true)},
	},
	{
		name: "an update that overwrites", plan: "foreign-edit", files: 2, verdict: operators.Overwritten,
		buggy: variant{do: overwriting}, correct: variant{do: resized},
	},
	{
		name: "a list of finalizers that overwrites", plan: "foreign-edit", files: 1, verdict: operators.Overwritten,
		buggy: variant{do: listsFinalizers(false)}, correct: variant{do: listsFinalizers(true)},
	},
	{
		name: "a right that only the error path needs", plan: "failing:1", files: 1, verdict: operators.Forbidden,
		roles: true,
		buggy: variant{do: cleanUpAfterError}, correct: variant{do: namedChild},
	},
	{
		name: "a name that no run repeats", plan: "foreign-edit", files: 1, verdict: operators.Unstable,
		buggy: variant{do: newName}, correct: variant{do: namedChild},
	},
	{
		name: "an exit after a refused write", plan: "forbidden:1", files: 1, verdict: operators.Died,
		buggy: variant{do: exitAfterError}, correct: variant{do: namedChild},
	},
}

func nothing(context.Context, *controller, string, *unstructured.Unstructured) error { return nil }

// namedChild has a ConfigMap of a fixed name, then a status.
func namedChild(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	if w == nil || w.GetDeletionTimestamp() != nil {
		return nil
	}
	if cached := c.cachedConfig(name); cached == nil || !metav1.IsControlledBy(cached, w) {
		if err := c.create(ctx, config(w, name)); err != nil {
			return err
		}
		have, err := c.configMaps().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if owners := have.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != w.GetUID() {
			return errors.New("the child of an earlier Widget is still there")
		}
	}
	return c.setStatus(ctx, w, "phase", "Ready")
}

// renamedChild has a ConfigMap of another name than namedChild. The buggy one leaves that of the last version.
func renamedChild(correct bool) reconcile {
	return func(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
		if w == nil || w.GetDeletionTimestamp() != nil {
			return nil
		}
		if err := c.create(ctx, config(w, name+"-config")); err != nil {
			return err
		}
		if correct {
			err := c.configMaps().Delete(ctx, name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		return c.setStatus(ctx, w, "phase", "Ready")
	}
}

// generatedChild has a ConfigMap with a generated name. exists looks for it, beside what was created in this process.
func generatedChild(exists func(c *controller, name string) bool) reconcile {
	return func(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
		if w == nil {
			c.set(name, "")
			return nil
		}
		if status(w, "phase") == "Ready" || w.GetDeletionTimestamp() != nil {
			return nil
		}
		if c.get(name) == "" && !exists(c, name) {
			child := config(w, "")
			child.SetGenerateName(name + "-")
			if _, err := c.configMaps().Create(ctx, child, metav1.CreateOptions{}); err != nil {
				return err
			}
			c.set(name, "created")
		}
		return c.setStatus(ctx, w, "phase", "Ready")
	}
}

const finalizer = "example.com/child"

// finalized deletes its child itself. The buggy one forgets its finalizer if the child was deleted before a crash.
func finalized(correct bool) reconcile {
	return func(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
		switch {
		case w == nil:
			return nil
		case w.GetDeletionTimestamp() != nil && len(w.GetFinalizers()) > 0:
			if err := c.configMaps().Delete(ctx, name, metav1.DeleteOptions{}); err != nil &&
				(!correct || !apierrors.IsNotFound(err)) {
				if apierrors.IsNotFound(err) {
					return nil
				}
				return err
			}
			w.SetFinalizers(nil)
			_, err := c.widgetsAPI().Update(ctx, w, metav1.UpdateOptions{})
			return err
		case w.GetDeletionTimestamp() != nil:
			return nil
		case len(w.GetFinalizers()) == 0:
			w.SetFinalizers([]string{finalizer})
			_, err := c.widgetsAPI().Update(ctx, w, metav1.UpdateOptions{})
			return err
		}
		return c.create(ctx, loose(name, name))
	}
}

// guarded is finalized, and asks the server before it creates the child. The buggy one adds its finalizer to a Widget
// that has a child already: if the Widget is gone by then, the child stays.
func guarded(correct bool) reconcile {
	return func(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
		if w == nil || w.GetDeletionTimestamp() != nil {
			return finalized(true)(ctx, c, name, w)
		}
		if !correct || len(w.GetFinalizers()) > 0 {
			now, err := c.widgetsAPI().Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || err == nil && now.GetDeletionTimestamp() != nil {
				return nil
			}
			if err == nil {
				err = c.create(ctx, loose(name, name))
			}
			if err != nil || len(w.GetFinalizers()) > 0 {
				return err
			}
		}
		return finalized(true)(ctx, c, name, w) // adds the finalizer
	}
}

// deletesFirst removes its finalizer when its child is gone. The buggy one asks again and again, the other waits for
// the event.
func deletesFirst(hot bool) reconcile {
	return func(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
		if w == nil || w.GetDeletionTimestamp() == nil || len(w.GetFinalizers()) == 0 {
			return guarded(true)(ctx, c, name, w)
		}
		err := c.configMaps().Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			w.SetFinalizers(nil)
			_, err = c.widgetsAPI().Update(ctx, w, metav1.UpdateOptions{})
		} else if err == nil && hot {
			c.queue.AddAfter(name, 5*time.Millisecond)
		}
		return err
	}
}

// replaced writes its whole child if that has anything but what it wants.
func replaced(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	if w == nil || w.GetDeletionTimestamp() != nil {
		return nil
	}
	want := config(w, name)
	have, err := c.configMaps().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return c.create(ctx, want)
	}
	if err != nil || len(have.GetAnnotations()) == 0 {
		return err
	}
	want.SetResourceVersion(have.GetResourceVersion())
	_, err = c.configMaps().Update(ctx, want, metav1.UpdateOptions{})
	return err
}

// givesUp tries five times.
func givesUp(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	err := namedChild(ctx, c, name, w)
	if err == nil {
		c.set(name, "")
		return nil
	}
	if c.set(name, c.get(name)+"+"); len(c.get(name)) > 5 {
		c.set(name, "")
		return nil
	}
	return err
}

// childOfGeneration has a child with a generated name, for which it looks at each generation of its Widget. It asks the
// server, and the buggy one does so only the first time after its start: then it looks in its cache.
func childOfGeneration(cached bool) reconcile {
	return func(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
		if w == nil || w.GetDeletionTimestamp() != nil || c.get(name) == fmt.Sprint(w.GetGeneration()) {
			return nil
		}
		n := c.cachedConfigs(name)
		if !cached || c.get(name) == "" {
			all, err := c.configMaps().List(ctx, metav1.ListOptions{LabelSelector: "widget=" + name})
			if err != nil {
				return err
			}
			n = len(all.Items)
		}
		if n == 0 {
			child := config(w, "")
			child.SetGenerateName(name + "-")
			if _, err := c.configMaps().Create(ctx, child, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		c.set(name, fmt.Sprint(w.GetGeneration()))
		return nil
	}
}

// resizedOnce is resized, and records the generation of the Widget: one that is older was read from an old cache.
func resizedOnce(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	if w == nil || w.GetDeletionTimestamp() != nil {
		return nil
	}
	const generation = "example.com/generation"
	now := fmt.Sprint(w.GetGeneration())
	have, err := c.configMaps().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		want := sized(w)
		want.SetAnnotations(map[string]string{generation: now})
		return c.create(ctx, want)
	}
	if err != nil {
		return err
	}
	annotations := have.GetAnnotations()
	if seen, err := strconv.ParseInt(annotations[generation], 10, 64); err != nil || seen >= w.GetGeneration() {
		return err
	}
	annotations[generation] = now
	have.SetAnnotations(annotations)
	have.Object["data"] = map[string]any{"size": size(w)}
	_, err = c.configMaps().Update(ctx, have, metav1.UpdateOptions{})
	return err
}

// statusFirst takes its own status for the truth, and writes it before the child.
func statusFirst(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	if w == nil || status(w, "phase") == "Ready" {
		return nil
	}
	if err := c.setStatus(ctx, w, "phase", "Ready"); err != nil {
		return err
	}
	return c.create(ctx, config(w, name))
}

// looseChild deletes the child of a Widget that is gone, and looks for such children. The buggy one believes the cache.
func looseChild(correct bool) reconcile {
	return func(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
		if name == atStart {
			return c.sweep(ctx, correct)
		}
		if w == nil {
			return c.deleteUnlessNeeded(ctx, name, correct)
		}
		return c.create(ctx, loose(name, name))
	}
}

// looseGenerated is looseChild with a generated name: another child replaces the one that was deleted.
func looseGenerated(correct bool) reconcile {
	return func(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
		all, err := c.configMaps().List(ctx, metav1.ListOptions{LabelSelector: "widget"})
		if err != nil {
			return err
		}
		children := slices.DeleteFunc(all.Items, func(o unstructured.Unstructured) bool { return o.GetGenerateName() == "" })
		if w != nil && len(children) > 0 {
			return nil
		}
		if w != nil {
			child := loose(name, "")
			child.SetGenerateName(name + "-")
			_, err := c.configMaps().Create(ctx, child, metav1.CreateOptions{})
			return err
		}
		for _, o := range children {
			widget := o.GetLabels()["widget"]
			if _, err := c.widgets.ByNamespace(namespace).Get(widget); !apierrors.IsNotFound(err) {
				continue
			}
			if correct {
				if _, err := c.widgetsAPI().Get(ctx, widget, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					return err
				}
			}
			if err := c.configMaps().Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
		return nil
	}
}

// ownedGenerated has a child with a generated name, which dies with its Widget. When it starts, it deletes the children
// of Widgets that it does not see.
func ownedGenerated(correct bool) reconcile {
	sweep := looseGenerated(correct)
	return func(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
		if name == atStart {
			return sweep(ctx, c, name, w)
		}
		if w == nil {
			return nil
		}
		all, err := c.configMaps().List(ctx, metav1.ListOptions{LabelSelector: "widget=" + name})
		isOwner := func(o metav1.OwnerReference) bool { return o.UID == w.GetUID() }
		if err != nil || slices.ContainsFunc(all.Items, func(o unstructured.Unstructured) bool {
			return slices.ContainsFunc(o.GetOwnerReferences(), isOwner)
		}) {
			return err
		}
		child := config(w, "")
		child.SetGenerateName(name + "-")
		_, err = c.configMaps().Create(ctx, child, metav1.CreateOptions{})
		return err
	}
}

func (c *controller) sweep(ctx context.Context, correct bool) error {
	all, err := c.configMaps().List(ctx, metav1.ListOptions{LabelSelector: "widget"})
	if err != nil {
		return err
	}
	for _, o := range all.Items {
		if o.GetName() != o.GetLabels()["widget"] {
			continue // somebody else's
		}
		if _, err := c.widgets.ByNamespace(namespace).Get(o.GetName()); apierrors.IsNotFound(err) {
			if err := c.deleteUnlessNeeded(ctx, o.GetName(), correct); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *controller) deleteUnlessNeeded(ctx context.Context, name string, ask bool) error {
	if ask {
		if _, err := c.widgetsAPI().Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return err
		}
	}
	if err := c.configMaps().Delete(ctx, name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// distant has its child in another namespace, where the garbage collector does not find an owner. When it starts, it
// looks for children of Widgets that are gone. The buggy one does that in the namespace of the Widgets, as its caches
// do.
func distant(correct bool) reconcile {
	return func(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
		children := c.api.Resource(configs).Namespace(store)
		if w != nil && w.GetDeletionTimestamp() == nil {
			_, err := children.Create(ctx, loose(name, name), metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		}
		if name == atStart {
			in := children
			if !correct {
				in = c.configMaps()
			}
			all, err := in.List(ctx, metav1.ListOptions{LabelSelector: "widget"})
			if err != nil {
				return err
			}
			for _, o := range all.Items {
				c.queue.Add(o.GetName())
			}
			return nil
		}
		if _, err := c.widgetsAPI().Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return err
		}
		if err := children.Delete(ctx, name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	}
}

// defaulted has a Secret without a type, which the server sets. The buggy one compares that with nothing, and writes
// its Secret again.
func defaulted(correct bool) reconcile {
	return func(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
		if w == nil || w.GetDeletionTimestamp() != nil {
			return nil
		}
		want := config(w, name)
		want.SetKind("Secret")
		api := c.api.Resource(secrets).Namespace(namespace)
		have, err := api.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = api.Create(ctx, want, metav1.CreateOptions{})
			if err == nil {
				c.queue.Add(name)
			}
			return err
		}
		if err != nil || correct || have.Object["type"] == want.Object["type"] {
			return err
		}
		want.SetResourceVersion(have.GetResourceVersion())
		_, err = api.Update(ctx, want, metav1.UpdateOptions{})
		c.queue.AddAfter(name, 5*time.Millisecond)
		return err
	}
}

// expecting is resized for the child that it has created: it takes another one for an old answer.
func expecting(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	if w == nil || w.GetDeletionTimestamp() != nil {
		return nil
	}
	have, err := c.configMaps().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		have, err = c.configMaps().Create(ctx, sized(w), metav1.CreateOptions{})
		if err == nil {
			c.set(name, string(have.GetUID()))
		}
		return err
	}
	if expected := c.get(name); err != nil || expected != "" && expected != string(have.GetUID()) {
		return err
	}
	return resized(ctx, c, name, w)
}

// leavesUnavailable does not try again what a server that is not available was to do.
func leavesUnavailable(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	err := namedChild(ctx, c, name, w)
	if apierrors.IsServiceUnavailable(err) {
		return nil
	}
	return err
}

// breaker sends no write any more after one was throttled.
type breaker struct {
	next http.RoundTripper
	open atomic.Bool
}

func (b *breaker) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method != http.MethodGet && b.open.Load() {
		return nil, errors.New("the breaker is open")
	}
	answer, err := b.next.RoundTrip(q)
	if err == nil && answer.StatusCode == http.StatusTooManyRequests {
		b.open.Store(true)
	}
	return answer, err
}

// resized has the size of the Widget in its child, by an update of what it has read.
func resized(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	if w == nil || w.GetDeletionTimestamp() != nil {
		return nil
	}
	have, err := c.configMaps().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return c.create(ctx, sized(w))
	}
	if err != nil {
		return err
	}
	if at, _, _ := unstructured.NestedString(have.Object, "data", "size"); at == size(w) {
		return nil
	}
	have.Object["data"] = map[string]any{"size": size(w)}
	_, err = c.configMaps().Update(ctx, have, metav1.UpdateOptions{})
	return err
}

// loopAfterConflict never forgets that it has met a conflict.
func loopAfterConflict(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	err := resized(ctx, c, name, w)
	if apierrors.IsConflict(err) {
		c.set("conflict", "yes")
	}
	if c.get("conflict") != "" && w != nil {
		c.queue.Add(name)
		_, err := c.configMaps().Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"widget":"web"}}}`),
			metav1.PatchOptions{})
		return err
	}
	return err
}

func looseUntilEvent(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	if w == nil {
		return nil
	}
	return c.create(ctx, loose(name, name))
}

func deleteInEvent(ctx context.Context, c *controller) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { _ = c.deleteUnlessNeeded(ctx, "web", false) }}
}

// deleteInSeenEvent does not know the deletions that an informer has missed, and reports after a list.
func deleteInSeenEvent(ctx context.Context, c *controller) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) {
		if w, seen := o.(*unstructured.Unstructured); seen {
			_ = c.deleteUnlessNeeded(ctx, w.GetName(), false)
		}
	}}
}

func createInEvent(ctx context.Context, c *controller) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		w := o.(*unstructured.Unstructured).DeepCopy()
		for ctx.Err() == nil && namedChild(ctx, c, w.GetName(), w) != nil {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}}
}

// password stores a random password twice: in a Secret, and in the status. The buggy one stores the copy first.
func password(correct bool) reconcile {
	return func(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
		if w == nil || w.GetDeletionTimestamp() != nil {
			return nil
		}
		word := rand.Text()
		if correct {
			stored, err := c.secret(ctx, w, word)
			if err != nil {
				return err
			}
			return c.setStatus(ctx, w, "password", stored)
		}
		if status(w, "password") == "" {
			if err := c.setStatus(ctx, w, "password", word); err != nil {
				return err
			}
		}
		_, err := c.secret(ctx, w, word)
		return err
	}
}

// secret creates the Secret with a word, and returns the word in it.
func (c *controller) secret(ctx context.Context, w *unstructured.Unstructured, word string) (string, error) {
	o := config(w, w.GetName())
	o.SetKind("Secret")
	o.SetAnnotations(map[string]string{"example.com/password": word})
	api := c.api.Resource(secrets).Namespace(namespace)
	if _, err := api.Create(ctx, o, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	stored, err := api.Get(ctx, w.GetName(), metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return stored.GetAnnotations()["example.com/password"], nil
}

// overwriting writes its whole child without a resourceVersion.
func overwriting(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	if w == nil || w.GetDeletionTimestamp() != nil {
		return nil
	}
	have, err := c.configMaps().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return c.create(ctx, sized(w))
	}
	if at, _, _ := unstructured.NestedString(have.Object, "data", "size"); err != nil || at == size(w) {
		return err
	}
	_, err = c.configMaps().Update(ctx, sized(w), metav1.UpdateOptions{})
	return err
}

// listsFinalizers adds its finalizer by a patch with the list of all. The correct one is refused if that was changed.
func listsFinalizers(correct bool) reconcile {
	return func(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
		if w == nil || slices.Contains(w.GetFinalizers(), finalizer) {
			return nil
		}
		change := map[string]any{"finalizers": append(w.GetFinalizers(), finalizer)}
		if correct {
			change["resourceVersion"] = w.GetResourceVersion()
		}
		body, err := json.Marshal(map[string]any{"metadata": change})
		if err == nil {
			_, err = c.widgetsAPI().Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
		}
		return err
	}
}

// cleanUpAfterError deletes what it could not write.
func cleanUpAfterError(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	err := namedChild(ctx, c, name, w)
	if apierrors.IsInternalError(err) {
		_ = c.configMaps().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "widget=" + name})
	}
	return err
}

// names counts those of newName.
var names atomic.Int32

// newName creates a child whose name has more parts than each before it: there is no pattern of such names.
func newName(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	if w == nil || c.cachedConfigs(name) > 0 || c.get(name) != "" {
		return nil
	}
	c.set(name, "created")
	return c.create(ctx, config(w, "web-"+strings.Repeat("a-", int(names.Add(1)))+"a"))
}

// coins counts the children of coin.
var coins atomic.Int32

// coin creates a child with a word that is another one from the fourth run on.
func coin(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	if w == nil || c.cachedConfigs(name) > 0 || c.get(name) != "" {
		return nil
	}
	c.set(name, "created")
	child := config(w, name)
	child.Object["data"] = map[string]any{"coin": fmt.Sprint(coins.Add(1) > 3)}
	return c.create(ctx, child)
}

// randomName creates a child with a random name, which the server has not generated.
func randomName(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	if w == nil || c.cachedConfigs(name) > 0 || c.get(name) != "" {
		return nil
	}
	c.set(name, "created")
	return c.create(ctx, config(w, "web-"+strings.ToLower(rand.Text())))
}

func exitAfterError(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error {
	err := namedChild(ctx, c, name, w)
	if apierrors.ReasonForError(err) == metav1.StatusReasonForbidden {
		return fatal{fmt.Errorf("%d: %w", http.StatusForbidden, err)}
	}
	return err
}

const definition = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: store}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

const roles = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: widgets}
rules:
- {apiGroups: [example.com], resources: [widgets, widgets/status], verbs: [get, list, watch, update]}
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: widgets}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: widgets}
subjects: [{kind: ServiceAccount, namespace: default, name: widgets}]
`

// workload returns the first files of one that creates, changes, deletes and creates again a Widget.
func workload(files int) map[string]string {
	all := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(wholeWorkload))[:files] {
		all[name] = wholeWorkload[name]
	}
	return all
}

var wholeWorkload = map[string]string{
	"1-create.yaml":       "{apiVersion: example.com/v1, kind: Widget, metadata: {name: web, namespace: shop}, spec: {size: 1}}",
	"2-resize.patch.yaml": "{apiVersion: example.com/v1, kind: Widget, metadata: {name: web, namespace: shop}, spec: {size: 2}}",
	"3-gone.delete.yaml":  "{apiVersion: example.com/v1, kind: Widget, metadata: {name: web, namespace: shop}}",
	"4-again.yaml":        "{apiVersion: example.com/v1, kind: Widget, metadata: {name: web, namespace: shop}, spec: {size: 1}}",
	"5-gone.delete.yaml":  "{apiVersion: example.com/v1, kind: Widget, metadata: {name: web, namespace: shop}}",
	"6-foreign.yaml": foreign +
		"{apiVersion: example.com/v1, kind: Widget, metadata: {name: web, namespace: shop}, spec: {size: 3}}",
}

// foreign is an object of somebody else, with the label that those of the operator have.
const foreign = "{apiVersion: v1, kind: ConfigMap, metadata: {name: foreign, namespace: shop, labels: {widget: web}}}\n---\n"

// write writes files into a new folder.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// judge judges an operator by the plans of a bug.
func (b bug) judge(t *testing.T, v variant, change func(*operators.Options)) *operators.Report {
	t.Helper()
	o := operators.Options{
		Operator: operators.Operator{Start: start(v)},
		CRDs:     []string{write(t, map[string]string{"crd.yaml": definition})},
		Workload: write(t, workload(b.files)), Plans: []string{b.plan}, Repeat: 1, Seed: 1, Whole: true,
		Quiet: 2 * longestRetry, Patience: 5 * time.Minute, Parallel: 8,
	}
	if b.roles {
		o.RBAC = []string{write(t, map[string]string{"roles.yaml": roles})}
	}
	if v.next != nil {
		o.Next = &operators.Operator{Start: start(*v.next)}
	}
	o.Answer(time.Second)
	change(&o)
	report, err := operators.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// impatient ends the runs of an operator that never arrives.
func impatient(o *operators.Options) { o.Hurry(1500 * time.Millisecond) }

// ofVerdicts returns the first bug of each verdict.
func ofVerdicts() (some []bug) {
	for _, b := range bugs {
		if !slices.ContainsFunc(some, func(o bug) bool { return o.verdict == b.verdict }) {
			some = append(some, b)
		}
	}
	return some
}

// TestSeededBugs checks that each bug is found by its plan, with its verdict and no other, and that its runs pass if
// the oracle of the verdict is switched off: the verdict is the oracle's. With -short it is one of each verdict.
func TestSeededBugs(t *testing.T) {
	t.Parallel()
	some := bugs
	if testing.Short() {
		some = ofVerdicts()
	}
	for _, b := range some {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			report := b.judge(t, b.buggy, impatient)
			if len(report.Findings) == 0 || len(others(report, b.verdict)) > 0 {
				t.Errorf("not %v alone in %v", b.verdict, describe(t, report))
			}
			if rest := report.Without(b.verdict); b.verdict != operators.Unstable && b.plan != "none" && len(rest) > 0 {
				t.Errorf("without the oracle: %v", rest)
			}
			for _, f := range report.Findings {
				noted := func(q operators.Request) bool { return q.Verb == "" && q.Note != "" }
				if f.Plan != nil && !slices.ContainsFunc(f.Requests, noted) {
					t.Errorf("nothing is said about what was done to it: %v", describe(t, report))
				}
			}
		})
	}
}

// TestKindsAreJudged checks that each kind of plans has to show a bug: one that does nothing cannot. docs/judge.md has
// all kinds.
func TestKindsAreJudged(t *testing.T) {
	page, err := os.ReadFile("../../../docs/judge.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range operators.Kinds {
		shows := func(b bug) bool { return strings.HasPrefix(b.plan+":", kind.Name+":") }
		if !slices.ContainsFunc(bugs, shows) {
			t.Errorf("no bug is shown by %s", kind.Name)
		}
		if row := fmt.Sprintf("| `%s` | %s |\n", kind.Name, kind.Sentence); !strings.Contains(string(page), row) {
			t.Errorf("docs/judge.md has not %s", row)
		}
	}
}

// TestMutantsOfVerdicts checks that the judge passes a bug of each verdict if its oracle is switched off. With -short
// it is the one whose oracle decides whether plans run; TestSeededBugs judges the same runs without the others.
func TestMutantsOfVerdicts(t *testing.T) {
	t.Parallel()
	some := ofVerdicts()
	for _, b := range some {
		if testing.Short() && b.verdict != operators.Unstable {
			continue
		}
		t.Run(b.verdict.String(), func(t *testing.T) {
			t.Parallel()
			report := b.judge(t, b.buggy, func(o *operators.Options) {
				impatient(o)
				o.SwitchOff(b.verdict)
			})
			if len(report.Findings) > 0 {
				t.Error(describe(t, report))
			}
		})
	}
	for v := operators.Unstable; v <= operators.Forbidden; v++ {
		if !slices.ContainsFunc(some, func(b bug) bool { return b.verdict == v }) {
			t.Errorf("no bug is %v", v)
		}
	}
}

// TestKindsThatAreNeeded checks that no other kind of plans gives the verdict on some bugs.
func TestKindsThatAreNeeded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a minute: all plans")
	}
	for _, b := range bugs {
		if !b.alone {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			report := b.judge(t, b.buggy, func(o *operators.Options) {
				impatient(o)
				o.Outage(time.Second)
				own, _, _ := strings.Cut(b.plan, ":")
				o.Plans = nil
				for _, kind := range operators.Kinds {
					if kind.Name != own {
						o.Plans = append(o.Plans, kind.Name)
					}
				}
			})
			if len(others(report, b.verdict)) < len(report.Findings) {
				t.Error(describe(t, report))
			}
		})
	}
}

// TestCorrectTwins checks that what does the same without the bug has no finding. With -short it is two of them.
func TestCorrectTwins(t *testing.T) {
	t.Parallel()
	for i, b := range bugs {
		if testing.Short() && i >= 2 {
			break
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			report := b.judge(t, b.correct, func(o *operators.Options) { o.Outage(time.Second) })
			if len(report.Findings) > 0 {
				t.Error(describe(t, report))
			}
		})
	}
}

// TestStepsOfSeveralObjects checks that what somebody deletes in a step is deleted after its last object was created.
func TestStepsOfSeveralObjects(t *testing.T) {
	t.Parallel()
	var step string
	for i := range 5 {
		step += strings.ReplaceAll(wholeWorkload["1-create.yaml"], "name: web,", fmt.Sprintf("name: w%d,", i)) + "\n---\n"
	}
	b := bug{plan: "namespace-gone", files: 1}
	report := b.judge(t, variant{do: namedChild}, func(o *operators.Options) {
		o.Workload, o.Plans = write(t, map[string]string{"1-create.yaml": step}), []string{"namespace-gone", "owner-gone"}
		if testing.Short() {
			o.Limit = 2
		}
	})
	if len(report.Results) < 2 || len(report.Findings) > 0 {
		t.Error(describe(t, report))
	}
}

// TestRepeats checks that an operator that does the same again and again, since its cache is old, is not waited for
// until its patience ends: that is longer than a test may last. It updates the status of an old Widget, or creates the
// child of one that is gone.
func TestRepeats(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a quarter of a minute: TestOldReadsEnd has the rule")
	}
	for _, plan := range []string{
		"expired:3:watch:widgets.example.com", "delayed:3:watch:widgets.example.com", "stale-restart",
	} {
		t.Run(plan, func(t *testing.T) {
			t.Parallel()
			b := bug{plan: plan, files: 3}
			report := b.judge(t, variant{do: namedChild}, func(o *operators.Options) { o.Patience = 24 * time.Hour })
			if len(report.Results) == 0 || len(report.Findings) > 0 {
				t.Error(describe(t, report))
			}
		})
	}
}

// TestOnKubernetes checks that a kube-apiserver in place of the test server gives the same verdicts: on each bug that
// of TestSeededBugs, and on its twin none. test/real/judge starts the server.
func TestOnKubernetes(t *testing.T) {
	if !operators.HasKubernetes() {
		t.Skip("kube-apiserver: test/real/judge runs this")
	}
	on := func(patience time.Duration) func(o *operators.Options) {
		return func(o *operators.Options) {
			end, err := o.OnKubernetes()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = end() })
			o.Quiet = time.Second // its controllers are slower
			o.Hurry(patience)
			o.Outage(time.Second)
		}
	}
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			report := b.judge(t, b.buggy, on(20*time.Second))
			t.Logf("%d plans", len(report.Results))
			if len(report.Findings) == 0 || len(others(report, b.verdict)) > 0 {
				t.Errorf("not %v alone in %v", b.verdict, describe(t, report))
			}
			if report := b.judge(t, b.correct, on(5*time.Minute)); len(report.Findings) > 0 {
				t.Errorf("its twin: %v", describe(t, report))
			}
		})
	}
}

// others returns the findings that have not a verdict.
func others(r *operators.Report, v operators.Verdict) []operators.Finding {
	same := func(f operators.Finding) bool { return f.Verdict == v }
	return slices.DeleteFunc(slices.Clone(r.Findings), same)
}

func describe(t *testing.T, r *operators.Report) string {
	t.Helper()
	text := fmt.Sprintf("%d places, %d plans\n", len(r.Places), len(r.Results))
	for _, result := range r.Results {
		text += fmt.Sprintf("%v reached %v: %v, %v\n", result.Plan, result.Reached, result.Verdicts, result.Took)
	}
	for _, f := range r.Findings {
		text += fmt.Sprintf("%v %v: %q\n", f.Verdict, f.Plan, f.Facts)
		for _, q := range f.Requests {
			text += fmt.Sprintf("  %8v [%d] step %d %s %d %s\n", q.After.Round(time.Millisecond), q.Instance, q.Step, q.Place,
				q.Status, q.Note)
		}
	}
	return text
}
