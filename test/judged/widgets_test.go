package judged

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What the operators in Go have in common: they do what ../matrix/clients/javascript/widgets.mjs does.
const (
	namespace = "default"
	elsewhere = "logs" // the namespace of the log with the mistake cross-namespace
	finalizer = "example.com/log"
)

// errAgain asks for another call soon.
var errAgain = errors.New("look again")

// children are those of Widgets. What is in memory is lost in a crash.
type children struct {
	bug   string
	cache client.Reader // of the children
	api   client.Client

	conflict atomic.Bool // was met

	mu      sync.Mutex
	created map[types.UID]bool
}

// newChildren reads the flag of an operator.
func newChildren(args []string) (*children, error) {
	c := &children{created: map[types.UID]bool{}}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.StringVar(&c.bug, "bug", "", "the mistake")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if c.bug != "" && !slices.ContainsFunc(bugs, func(b bug) bool { return b.name == c.bug }) {
		return nil, fmt.Errorf("there is no mistake %q", c.bug)
	}
	return c, nil
}

func (c *children) has(bugs ...string) bool { return slices.Contains(bugs, c.bug) }

// reconcile makes the children of a Widget, and returns changes of its status. It may do so before it fails.
func (c *children) reconcile(ctx context.Context, w *unstructured.Unstructured) (map[string]any, error) {
	phase, _, _ := unstructured.NestedString(w.Object, "status", "phase")
	if phase == "Ready" && c.has("status-first", "generate-name", "stale-cache") {
		return nil, nil
	}
	ready := map[string]any{"phase": "Ready"}
	if c.bug == "status-first" {
		if err := c.setStatus(ctx, w, ready); err != nil {
			return nil, err
		}
	}
	if c.conflict.Load() {
		looks, _, _ := unstructured.NestedInt64(w.Object, "status", "looks")
		return map[string]any{"looks": looks + 1}, errAgain
	}
	fresh := base64.StdEncoding.EncodeToString([]byte(rand.Text()))
	if stored, _, _ := unstructured.NestedString(w.Object, "status", "password"); c.bug == "password" && stored == "" {
		if err := c.setStatus(ctx, w, map[string]any{"password": fresh}); err != nil {
			return nil, err
		}
	}
	if err := c.configMap(ctx, w); err != nil {
		return nil, c.met(ctx, w, err)
	}
	if err := c.log(ctx, w); err != nil {
		return nil, c.met(ctx, w, err)
	}
	stored, err := c.secret(ctx, w, fresh)
	if err != nil {
		return nil, c.met(ctx, w, err)
	}
	if c.bug != "password" {
		ready["password"] = stored
	}
	return ready, nil
}

// setStatus changes fields of the status, unless it has them.
func (c *children) setStatus(ctx context.Context, w *unstructured.Unstructured, changes map[string]any) error {
	have, _, _ := unstructured.NestedMap(w.Object, "status")
	status := maps.Clone(have)
	if status == nil {
		status = map[string]any{}
	}
	maps.Copy(status, changes)
	if reflect.DeepEqual(have, status) {
		return nil
	}
	w.Object["status"] = status
	return c.api.Status().Update(ctx, w)
}

// met handles the error of a write, and returns it.
func (c *children) met(ctx context.Context, w *unstructured.Unstructured, err error) error {
	if c.bug == "hot-loop" && apierrors.IsConflict(err) {
		c.conflict.Store(true)
	}
	if c.bug == "right" && apierrors.IsInternalError(err) {
		_ = c.api.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace),
			client.MatchingLabels{"widget": w.GetName()})
	}
	return err
}

// owned returns what dies with a Widget.
func owned(w *unstructured.Unstructured) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: w.GetName(), Labels: map[string]string{"widget": w.GetName()},
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "example.com/v1", Kind: "Widget", Name: w.GetName(), UID: w.GetUID()},
		},
	}
}

func isOf(w *unstructured.Unstructured, child client.Object) bool {
	owners := child.GetOwnerReferences()
	return len(owners) > 0 && owners[0].UID == w.GetUID()
}

// own reads a child, unless that is one of an earlier Widget, and reports whether it exists.
func (c *children) own(ctx context.Context, w *unstructured.Unstructured, child client.Object) (bool, error) {
	err := c.cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: w.GetName()}, child)
	if err == nil && !isOf(w, child) {
		err = errors.New("the child of an earlier Widget is still there")
	}
	return err == nil, client.IgnoreNotFound(err)
}

func sizeOf(w *unstructured.Unstructured) string {
	size, _, _ := unstructured.NestedInt64(w.Object, "spec", "size")
	return fmt.Sprint(size)
}

func (c *children) configMap(ctx context.Context, w *unstructured.Unstructured) error {
	if c.has("generate-name", "stale-cache") {
		return c.generated(ctx, w)
	}
	want := &corev1.ConfigMap{ObjectMeta: owned(w), Data: map[string]string{"size": sizeOf(w)}}
	have := &corev1.ConfigMap{}
	is, err := c.own(ctx, w, have)
	switch {
	case err != nil:
		return err
	case !is:
		return c.api.Create(ctx, want)
	case c.bug == "fight" && len(have.Annotations) > 0:
		want.ResourceVersion = have.ResourceVersion
		return c.api.Update(ctx, want)
	case have.Data["size"] == want.Data["size"]:
		return nil
	case c.bug == "put":
		return c.api.Update(ctx, want)
	}
	have = have.DeepCopy()
	have.Data = want.Data
	return c.api.Update(ctx, have)
}

func (c *children) generated(ctx context.Context, w *unstructured.Unstructured) error {
	if c.bug == "stale-cache" { // what is read at resourceVersion 0 may be old
		var all corev1.ConfigMapList
		err := c.api.List(ctx, &all, client.InNamespace(namespace), client.MatchingLabels{"widget": w.GetName()}, old)
		if err != nil || slices.ContainsFunc(all.Items, func(o corev1.ConfigMap) bool { return isOf(w, &o) }) {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.created[w.GetUID()] {
		return nil
	}
	child := &corev1.ConfigMap{ObjectMeta: owned(w), Data: map[string]string{"size": sizeOf(w)}}
	child.Name, child.GenerateName = "", w.GetName()+"-"
	if err := c.api.Create(ctx, child); err != nil {
		return err
	}
	c.created[w.GetUID()] = true
	return nil
}

var old = &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}

func (c *children) newLog(widget string) *corev1.ConfigMap {
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: widget + "-log", Labels: map[string]string{"widget": widget},
	}}
	if c.bug == "cross-namespace" {
		o.Namespace = elsewhere
	}
	return o
}

func (c *children) log(ctx context.Context, w *unstructured.Unstructured) error {
	o := c.newLog(w.GetName())
	err := c.api.Get(ctx, client.ObjectKeyFromObject(o), &corev1.ConfigMap{})
	if apierrors.IsNotFound(err) {
		return c.api.Create(ctx, o)
	}
	return err
}

func (c *children) deleteLog(ctx context.Context, widget string) error {
	return c.api.Delete(ctx, c.newLog(widget))
}

// sweep deletes the logs of Widgets that it does not see.
func (c *children) sweep(ctx context.Context) error {
	seen, logs := &unstructured.UnstructuredList{}, &corev1.ConfigMapList{}
	seen.SetGroupVersionKind(newWidget().GroupVersionKind())
	if err := c.api.List(ctx, seen, client.InNamespace(namespace), old); err != nil {
		return err
	}
	if err := c.api.List(ctx, logs, client.InNamespace(namespace), client.HasLabels{"widget"}); err != nil {
		return err
	}
	for _, o := range logs.Items {
		widget, isLog := strings.CutSuffix(o.Name, "-log")
		isSeen := func(w unstructured.Unstructured) bool { return w.GetName() == widget }
		if isLog && !slices.ContainsFunc(seen.Items, isSeen) {
			if err := c.deleteLog(ctx, widget); err != nil {
				return err
			}
		}
	}
	return nil
}

// secret makes the Secret with a password, in base64, and returns the one in it.
func (c *children) secret(ctx context.Context, w *unstructured.Unstructured, password string) (string, error) {
	plain, err := base64.StdEncoding.DecodeString(password)
	if err != nil {
		return "", err
	}
	want := &corev1.Secret{ObjectMeta: owned(w), Data: map[string][]byte{"password": plain}}
	have := &corev1.Secret{}
	is, err := c.own(ctx, w, have)
	if err == nil && !is {
		return password, c.api.Create(ctx, want)
	}
	if err == nil && c.bug == "default" && have.Type != want.Type { // the server has set it
		want.Data, want.ResourceVersion = have.Data, have.ResourceVersion
		err = errors.Join(c.api.Update(ctx, want), errAgain)
	}
	return base64.StdEncoding.EncodeToString(have.Data["password"]), err
}
