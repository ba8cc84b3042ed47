// Command operator gives each Widget a ConfigMap with a generated name, unless its cache has one, and reports the size
// that it has seen. With --token it asks for a token of the default ServiceAccount first.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"reflect"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

var token = flag.Bool("token", false, "ask for a token first")

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	options := ctrl.Options{Metrics: server.Options{BindAddress: "0"}}
	options.Client.Cache = &client.CacheOptions{}
	// Versions before v0.25 do not have the field.
	if f := reflect.ValueOf(options.Client.Cache).Elem().FieldByName("EnableReadYourWritesConsistency"); f.IsValid() {
		yes := true
		f.Set(reflect.ValueOf(&yes))
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, options)
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).Named("widget").
		For(newWidget(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.ConfigMap{}).
		Complete(reconciler{manager.GetClient()})
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

func newWidget() *unstructured.Unstructured {
	w := &unstructured.Unstructured{}
	w.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
	return w
}

type reconciler struct{ client.Client }

func (r reconciler) Reconcile(ctx context.Context, q ctrl.Request) (ctrl.Result, error) {
	widget := newWidget()
	if err := r.Get(ctx, q.NamespacedName, widget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if *token {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: q.Namespace, Name: "default"}}
		if err := r.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{}); err != nil {
			return ctrl.Result{}, err
		}
	}
	var children corev1.ConfigMapList
	if err := r.List(ctx, &children, client.InNamespace(q.Namespace), client.MatchingLabels{"widget": q.Name}); err != nil {
		return ctrl.Result{}, err
	}
	if len(children.Items) == 0 {
		child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: q.Namespace, GenerateName: q.Name + "-", Labels: map[string]string{"widget": q.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(widget, widget.GroupVersionKind())},
		}}
		if err := r.Create(ctx, child); err != nil {
			return ctrl.Result{}, err
		}
	}
	size, _, err := unstructured.NestedInt64(widget.Object, "spec", "size")
	if err != nil {
		return ctrl.Result{}, err
	}
	seen, found, err := unstructured.NestedInt64(widget.Object, "status", "size")
	if err != nil || found && seen == size {
		return ctrl.Result{}, err
	}
	patch := client.MergeFrom(widget.DeepCopy())
	if err := unstructured.SetNestedField(widget.Object, size, "status", "size"); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.Status().Patch(ctx, widget, patch)
}
