package main

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	clientwatch "k8s.io/client-go/tools/watch"
)

// retryWatcher is client-go's RetryWatcher behind a list. As its documentation says it ends when the
// history has expired; then this program lists again.
func retryWatcher(ctx context.Context, t target) error {
	api, err := kubernetes.NewForConfig(t.config)
	if err != nil {
		return err
	}
	maps := api.CoreV1().ConfigMaps(t.namespace)
	for ctx.Err() == nil {
		if err := listAndWatch(ctx, maps); err != nil {
			report(failed(err))
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}

// listAndWatch returns when the list fails or the RetryWatcher has ended.
func listAndWatch(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	report(listed(list.Items))
	report(synced)
	watcher, err := clientwatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, watchOf{maps})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for e := range watcher.ResultChan() {
		if o, ok := e.Object.(metav1.Object); ok && e.Type != watch.Bookmark {
			report(event(string(e.Type), o))
		} else if e.Type == watch.Error {
			report(failed(apierrors.FromObject(e.Object)))
		}
	}
	return nil
}

// watchOf is the part of the client that the RetryWatcher needs.
type watchOf struct {
	maps corev1client.ConfigMapInterface
}

func (w watchOf) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return w.maps.Watch(ctx, options)
}
