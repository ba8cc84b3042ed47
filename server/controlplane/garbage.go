package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/garbage"
	"github.com/keepwatch/keepwatch/server/storage"
)

// collected returns options of a resource whose objects the garbage collector follows: it reads the watch cache of the
// storage, not through the API. With UpstreamStorage it has a watch cache of its own. Without a collector the options
// stay as they are.
func (b *backend) collected(options generic.RESTOptions) generic.RESTOptions {
	if b.collector == nil {
		return options
	}
	options.EnableGarbageCollection = true
	open := options.Decorator
	options.Decorator = func(config *storagebackend.ConfigForResource, prefix string,
		keyOf func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attributes apistorage.AttrFunc, triggers apistorage.IndexerFuncs,
		indexers *cache.Indexers) (apistorage.Interface, factory.DestroyFunc, error) {
		opened, destroy, err := open(config, prefix, keyOf, newObject, newList, attributes, triggers, indexers)
		if err != nil || config.GroupResource == (schema.GroupResource{Resource: "events"}) { // these own nothing, and expire
			return opened, destroy, err
		}
		read, closeRead := opened, func() {}
		if b.kind == UpstreamStorage {
			if read, closeRead, err = b.openStorage(config, prefix, keyOf, newObject, newList, attributes, triggers,
				indexers); err != nil {
				destroy()
				return nil, nil, err
			}
		}
		remove := b.collector.Follow(config.GroupResource, read.(*storage.Storage).Cache())
		return opened, func() {
			remove()
			closeRead()
			destroy()
		}, nil
	}
	return options
}

// definitionOpener requests the custom resources that the garbage collector does not follow, since
// apiextensions-apiserver opens the storage of one at the first request, and closes it when the definition changes.
type definitionOpener struct {
	collector   *garbage.Collector
	metadata    metadata.Interface
	definitions listers.CustomResourceDefinitionLister
	changed     chan struct{} // of capacity 1: definitions changed since it was received from
	synced      func() bool   // definitions lists all
}

// openRetry is the pause after a custom resource could not be requested.
const openRetry = time.Second

func newDefinitionOpener(collector *garbage.Collector, metadata metadata.Interface,
	definitions listers.CustomResourceDefinitionLister, informer cache.SharedIndexInformer) (*definitionOpener, error) {
	o := &definitionOpener{collector, metadata, definitions, make(chan struct{}, 1), informer.HasSynced}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { o.notify() },
		UpdateFunc: func(any, any) { o.notify() },
	})
	return o, err
}

func (o *definitionOpener) notify() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// run requests custom resources until ctx is done. It closes complete when all were requested for the first time.
func (o *definitionOpener) run(ctx context.Context, complete chan<- struct{}) {
	if !cache.WaitForCacheSync(ctx.Done(), o.synced) {
		return
	}
	completed := sync.OnceFunc(func() { close(complete) })
	for {
		if err := o.open(ctx); err == nil {
			completed()
		} else if ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "A custom resource is requested again later")
			select {
			case <-ctx.Done():
			case <-time.After(openRetry):
				o.notify()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-o.changed:
		case <-o.collector.Unfollowed():
		}
	}
}

// open requests the resources that are not followed. One that fails does not keep others from being opened.
func (o *definitionOpener) open(ctx context.Context) error {
	definitions, err := o.definitions.List(labels.Everything())
	if err != nil {
		return err
	}
	var failed []error
	for _, d := range definitions {
		of := schema.GroupResource{Group: d.Spec.Group, Resource: d.Status.AcceptedNames.Plural}
		served := slices.IndexFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Served
		})
		if served < 0 || ownGroups.Has(of.Group) || !apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) ||
			o.collector.Follows(of) {
			continue
		}
		// opens all versions
		_, err := o.metadata.Resource(of.WithVersion(d.Spec.Versions[served].Name)).List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil && !o.collector.Follows(of) {
			err = fmt.Errorf("the storage of %s is being closed", of)
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// runCollector collects garbage until ctx is done.
func (c *chain) runCollector(ctx context.Context) {
	var opening sync.WaitGroup
	defer opening.Wait()
	complete := make(chan struct{})
	opening.Go(func() { c.opener.run(ctx, complete) })
	c.collector.Run(ctx, complete)
}
