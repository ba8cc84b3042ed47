package controlplane

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
)

// quotaObjects reads ResourceQuotas straight from their storage, so that a server without quotas has no informer of
// them. store is set before the server answers requests.
type quotaObjects struct{ store *genericregistry.Store }

// Any reports whether a namespace has a quota, as far as the watch cache knows.
func (o *quotaObjects) Any(ctx context.Context, namespace string) (bool, error) {
	found, err := o.list(ctx, namespace, "0")
	return len(found) > 0, err
}

// List returns copies of the newest state of the quotas of a namespace.
func (o *quotaObjects) List(ctx context.Context, namespace string) ([]corev1.ResourceQuota, error) {
	found, err := o.list(ctx, namespace, "")
	copies := make([]corev1.ResourceQuota, len(found))
	for i := range found {
		found[i].DeepCopyInto(&copies[i])
	}
	return copies, err
}

func (o *quotaObjects) list(ctx context.Context, namespace, version string) ([]corev1.ResourceQuota, error) {
	list, err := o.store.List(request.WithNamespace(ctx, namespace),
		&metainternalversion.ListOptions{ResourceVersion: version})
	if err != nil {
		return nil, err
	}
	return list.(*corev1.ResourceQuotaList).Items, nil
}

// WaitForAny watches the quotas of all namespaces until there is one. It returns an error when ctx is done.
func (o *quotaObjects) WaitForAny(ctx context.Context) error {
	for ctx.Err() == nil {
		if o.watchForAny(ctx) == nil {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(initialRetry):
		}
	}
	return ctx.Err()
}

func (o *quotaObjects) watchForAny(ctx context.Context) error {
	// begins with those that exist
	watching, err := o.store.Watch(clusterScoped(ctx), &metainternalversion.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	defer watching.Stop()
	for event := range watching.ResultChan() {
		if event.Type == watch.Added {
			return nil
		}
	}
	return errors.New("the watch of quotas ended")
}
