package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/informer/clientgo"
)

// informer is client-go's shared informer, of its factory.
func informer(ctx context.Context, t target) error {
	factory, err := newFactory(t)
	if err != nil {
		return err
	}
	return notify(ctx, factory, factory.Core().V1().ConfigMaps().Informer())
}

// keepwatchInformer is Keepwatch's informer in the same factory.
func keepwatchInformer(ctx context.Context, t target) error {
	factory, err := newFactory(t)
	if err != nil {
		return err
	}
	maps := func(c kubernetes.Interface) cache.ListerWatcher {
		return cache.NewListWatchFromClient(c.CoreV1().RESTClient(), "configmaps", t.namespace, fields.Everything())
	}
	return notify(ctx, factory, factory.InformerFor(&corev1.ConfigMap{}, clientgo.For(maps)))
}

func newFactory(t target) (informers.SharedInformerFactory, error) {
	api, err := kubernetes.NewForConfig(t.config)
	if err != nil {
		return nil, err
	}
	return informers.NewSharedInformerFactoryWithOptions(api, 0, informers.WithNamespace(t.namespace)), nil
}

// notify prints the informer's notifications.
func notify(ctx context.Context, factory informers.SharedInformerFactory, shared cache.SharedIndexInformer) error {
	print := func(kind string, o any) {
		if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = unknown.Obj
		}
		report(event(kind, o.(metav1.Object)))
	}
	handle, err := shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { print("ADDED", o) },
		UpdateFunc: func(_, o any) { print("MODIFIED", o) },
		DeleteFunc: func(o any) { print("DELETED", o) },
	})
	if err != nil {
		return err
	}
	if err := shared.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		report(failed(err))
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if cache.WaitForCacheSync(ctx.Done(), handle.HasSynced) {
		report(synced)
	}
	<-ctx.Done()
	return nil
}
