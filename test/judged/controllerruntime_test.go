package judged

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconciler is an operator with controller-runtime. It reads Widgets from the server, and their children from its
// cache.
type reconciler struct{ *children }

// runReconciler runs it: --bug NAME.
func runReconciler(args []string) error {
	c, err := newChildren(args)
	if err != nil {
		return err
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	})
	if err != nil {
		return err
	}
	c.cache = mgr.GetClient()
	if c.api, err = client.New(cfg, client.Options{}); err != nil {
		return err
	}
	if c.bug == "stale-list" {
		if err := mgr.Add(manager.RunnableFunc(c.sweep)); err != nil {
			return err
		}
	}
	var selected []builder.ForOption
	if c.bug == "intermediate" {
		selected = append(selected, builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(event.UpdateEvent) bool { return false },
		}))
	}
	if c.bug == "event-only" {
		selected = append(selected, builder.WithPredicates(predicate.Funcs{
			DeleteFunc: func(e event.DeleteEvent) bool {
				_ = c.deleteLog(context.Background(), e.Object.GetName())
				return false
			},
		}))
	}
	build := ctrl.NewControllerManagedBy(mgr).Named("widgets").For(newWidget(), selected...).
		WithOptions(controller.Options{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			5*time.Millisecond, time.Second)})
	if c.bug != "intermediate" {
		parent := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			if o.GetLabels()["widget"] == "" {
				return nil
			}
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: o.GetLabels()["widget"]}}}
		})
		build = build.Watches(&corev1.ConfigMap{}, parent).Watches(&corev1.Secret{}, parent)
	}
	if err := build.Complete(reconciler{c}); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

func (r reconciler) Reconcile(ctx context.Context, q ctrl.Request) (ctrl.Result, error) {
	w := newWidget()
	switch err := r.api.Get(ctx, q.NamespacedName, w); {
	case apierrors.IsNotFound(err) && r.bug == "cross-namespace":
		return ctrl.Result{}, client.IgnoreNotFound(r.deleteLog(ctx, q.Name))
	case err != nil:
		return ctrl.Result{}, client.IgnoreNotFound(err)
	case w.GetDeletionTimestamp() != nil:
		return ctrl.Result{}, r.clean(ctx, w)
	}
	if !r.has("event-only", "intermediate", "cross-namespace") && controllerutil.AddFinalizer(w, finalizer) {
		return ctrl.Result{}, r.api.Update(ctx, w)
	}
	changes, err := r.reconcile(ctx, w)
	if err == nil || errors.Is(err, errAgain) {
		err = errors.Join(err, r.setStatus(ctx, w, changes))
	}
	return ctrl.Result{}, err
}

// clean deletes the log of a Widget that is being deleted.
func (r reconciler) clean(ctx context.Context, w *unstructured.Unstructured) error {
	if !controllerutil.RemoveFinalizer(w, finalizer) {
		return nil
	}
	err := r.deleteLog(ctx, w.GetName())
	if apierrors.IsNotFound(err) && r.bug == "finalizer" {
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	return r.api.Update(ctx, w)
}
