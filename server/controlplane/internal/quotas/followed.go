package quotas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
)

var (
	errUnlisted = errors.New("a resource is not listed yet")
	errUnknown  = errors.New("a resource is not served")
)

// listTimeout is how long the status of a quota waits for the first list of a resource. One that fails permanently must
// not stop the other numbers of the quota.
const listTimeout = 30 * time.Second

// rediscovery is the time between two requests of discovery for resources that are not known.
const rediscovery = time.Second

// followed is the resources whose objects are counted: pods, services and claims as they are, and the metadata of
// others. Only the controller's loop calls add.
type followed struct {
	client   kubernetes.Interface
	metadata metadata.Interface
	// changed is called after a change of an object that may change a usage.
	changed    func(namespace string, of quota.Evaluator, delay time.Duration)
	writes     *Writes // are listed with the objects
	kinds      *restmapper.DeferredDiscoveryRESTMapper
	discovered time.Time // when kinds was reset
	informers  sync.WaitGroup

	mu      sync.Mutex
	sources map[schema.GroupResource]*source
}

// source has the objects of a resource.
type source struct {
	informer cache.SharedIndexInformer
	begun    time.Time
}

// counted returns the resource of a name like count/deployments.apps.
func counted(name corev1.ResourceName) (schema.GroupResource, bool) {
	plain, ok := strings.CutPrefix(string(name), "count/")
	of := schema.ParseGroupResource(plain)
	_, never := ignored[of]
	return of, ok && !never
}

// add follows the resource of an evaluator until ctx is done, or until it is not served any more. It returns
// errUnlisted until the objects are known, and errUnknown if they cannot be.
func (f *followed) add(ctx context.Context, of quota.Evaluator) error {
	name := of.GroupResource()
	r := f.get(name)
	if r == nil {
		informer, err := f.informer(name)
		if err != nil {
			return err
		}
		if r, err = f.start(ctx, of, informer); err != nil {
			return err
		}
	}
	switch {
	case r.informer.HasSynced():
		return nil
	case time.Since(r.begun) < listTimeout:
		return errUnlisted
	}
	return fmt.Errorf("%w: %s cannot be listed", errUnknown, name)
}

func (f *followed) get(of schema.GroupResource) *source {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sources[of]
}

// informer returns a new informer of a resource. It returns errUnknown unless a namespaced one is served.
func (f *followed) informer(of schema.GroupResource) (cache.SharedIndexInformer, error) {
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	switch of {
	case podResource:
		return coreinformers.NewPodInformer(f.client, metav1.NamespaceAll, 0, indexers), nil
	case serviceResource:
		return coreinformers.NewServiceInformer(f.client, metav1.NamespaceAll, 0, indexers), nil
	case claimResource:
		return coreinformers.NewPersistentVolumeClaimInformer(f.client, metav1.NamespaceAll, 0, indexers), nil
	}
	served, err := f.served(of)
	if err != nil {
		if time.Since(f.discovered) > rediscovery {
			f.kinds.Reset()
			f.discovered = time.Now()
		}
		return nil, fmt.Errorf("%w: %w", errUnknown, err)
	}
	return metadatainformer.NewFilteredMetadataInformer(f.metadata, served, metav1.NamespaceAll, 0, indexers,
		nil).Informer(), nil
}

// served returns a version of a namespaced resource.
func (f *followed) served(of schema.GroupResource) (schema.GroupVersionResource, error) {
	none := schema.GroupVersionResource{}
	found, err := f.kinds.ResourcesFor(of.WithVersion(""))
	if err != nil {
		return none, err
	}
	// also finds groups that begin alike
	i := slices.IndexFunc(found, func(r schema.GroupVersionResource) bool { return r.GroupResource() == of })
	if i < 0 {
		return none, &meta.NoResourceMatchError{PartialResource: of.WithVersion("")}
	}
	kind, err := f.kinds.KindFor(found[i])
	if err != nil {
		return none, err
	}
	mapping, err := f.kinds.RESTMapping(kind.GroupKind(), kind.Version)
	if err == nil && mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		err = fmt.Errorf("%s have no namespace", of)
	}
	return found[i], err
}

// start runs an informer.
func (f *followed) start(ctx context.Context, of quota.Evaluator, informer cache.SharedIndexInformer) (*source, error) {
	name := of.GroupResource()
	ctx, stop := context.WithCancel(ctx)
	gone := func(ctx context.Context, r *cache.Reflector, err error) {
		switch {
		case ctx.Err() != nil:
		case apierrors.IsNotFound(err): // its definition was deleted
			f.mu.Lock()
			delete(f.sources, name)
			f.mu.Unlock()
			stop()
			f.kinds.Reset()
			f.changed(metav1.NamespaceAll, of, rediscovery)
		default:
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}
	}
	_, err := informer.AddEventHandler(f.handler(of))
	if err = errors.Join(err, informer.SetTransform(withoutManagers),
		informer.SetWatchErrorHandlerWithContext(gone)); err != nil {
		stop()
		return nil, err
	}
	added := &source{informer, time.Now()}
	f.mu.Lock()
	f.sources[name] = added
	f.mu.Unlock()
	f.informers.Go(func() {
		defer stop()
		informer.RunWithContext(ctx)
	})
	return added, nil
}

func withoutManagers(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// handler reports deletions, updates that change the usage, and creations, which the plugin has counted, or has not if
// the quota was new.
func (f *followed) handler(of quota.Evaluator) cache.ResourceEventHandler {
	e, _ := of.(*evaluator)
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			f.writes.seen(of.GroupResource(), obj.(metav1.Object))
			if !initial {
				f.changed(obj.(metav1.Object).GetNamespace(), of, settleTime)
			}
		},
		UpdateFunc: func(before, after any) {
			f.writes.seen(of.GroupResource(), after.(metav1.Object))
			if e != nil && e.changes(before.(runtime.Object), after.(runtime.Object)) {
				f.changed(after.(metav1.Object).GetNamespace(), of, 0)
			}
		},
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil { // the informer made the object
				f.changed(name.Namespace, of, 0)
			}
		},
	}
}

// lister returns how to list a resource in a namespace, with the writes that are counted as if they were stored.
func (f *followed) lister(of schema.GroupResource) generic.ListFuncByNamespace {
	return func(namespace string) (all []runtime.Object, err error) {
		r := f.get(of)
		if r == nil || !r.informer.HasSynced() {
			return nil, fmt.Errorf("%w: %s", errUnknown, of)
		}
		writes := f.writes.counted(namespace, of) // first: those that are then seen are in the list
		err = cache.ListAllByNamespace(r.informer.GetIndexer(), namespace, labels.Everything(), func(obj any) {
			all = append(all, obj.(runtime.Object))
		})
		return applied(writes, all), err
	}
}
