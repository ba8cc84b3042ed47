package main

import (
	"context"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

// controllerRuntime is a manager with one controller, which reads each object that it is called for.
func controllerRuntime(ctx context.Context, t target) error {
	log.SetLogger(logr.Discard())
	manager, err := ctrl.NewManager(t.config, ctrl.Options{
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{t.namespace: {}}},
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	r := &reconciler{manager.GetClient(), map[string]bool{}}
	if err := ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).Complete(r); err != nil {
		return err
	}
	return manager.Start(ctx)
}

// reconciler sees the names of objects, and their states at the time of the call. One goroutine calls it.
type reconciler struct {
	client.Client
	known map[string]bool // names
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var o corev1.ConfigMap
	err := r.Get(ctx, request.NamespacedName, &o)
	switch {
	case apierrors.IsNotFound(err):
		if r.known[request.Name] {
			report(clients.Line{Type: "DELETED", Name: request.Name})
		}
		delete(r.known, request.Name)
	case err != nil:
		report(failed(err))
		return ctrl.Result{}, err
	case r.known[request.Name]:
		report(event("MODIFIED", &o))
	default:
		r.known[request.Name] = true
		report(event("ADDED", &o))
	}
	return ctrl.Result{}, nil
}
