package store_test

import (
	"context"
	"io"
	goruntime "runtime"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch"
)

// watchCache is k8s.io/apiserver's, over a storage that is fed by hand.
type watchCache struct {
	*cacher.Cacher
	storage    *handFed
	last       keepwatch.Object // that was sent
	goroutines int              // before there was a watch cache
}

const prefix = "/configmaps/"

func newWatchCache(f *fleet) *watchCache {
	before := goruntime.NumGoroutine()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard) // it logs every end
	fed := &handFed{list: f.items, events: make(chan watch.Event, 100)}
	c, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             fed,
		Versioner:           storage.APIObjectVersioner{},
		GroupResource:       schema.GroupResource{Resource: "configmaps"},
		EventsHistoryWindow: cacher.DefaultEventFreshDuration,
		ResourcePrefix:      prefix,
		KeyFunc:             func(o runtime.Object) (string, error) { return storage.NamespaceKeyFunc(prefix, o) },
		GetAttrsFunc: func(o runtime.Object) (labels.Set, fields.Set, error) {
			c := o.(*corev1.ConfigMap)
			return c.Labels, fields.Set{"metadata.name": c.Name, "metadata.namespace": c.Namespace}, nil
		},
		NewFunc:     func() runtime.Object { return &corev1.ConfigMap{} },
		NewListFunc: func() runtime.Object { return &corev1.ConfigMapList{} },
		Codec:       scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion),
	})
	must(err)
	must(c.Wait(context.Background()))
	return &watchCache{c, fed, nil, before}
}

// apply sends the events, and waits until the last one can be read.
func (w *watchCache) apply(objects []keepwatch.Object) {
	w.send(objects)
	must(w.read(w.last.Key(), w.last.Revision().String()))
}

func (w *watchCache) send(objects []keepwatch.Object) {
	for _, o := range objects {
		w.storage.events <- watch.Event{Type: watch.Modified, Object: o.(*object).ConfigMap}
		w.last = o
	}
}

func (w *watchCache) get(key keepwatch.Key) { must(w.read(key, "0")) }

func (w *watchCache) read(key keepwatch.Key, notOlderThan string) error {
	options := storage.GetOptions{ResourceVersion: notOlderThan}
	return w.Get(context.Background(), prefix+key.Namespace+"/"+key.Name, options, &corev1.ConfigMap{})
}

func (w *watchCache) listAll() int { return w.list(prefix) }

func (w *watchCache) listNamespace(namespace string) int { return w.list(prefix + namespace + "/") }

func (w *watchCache) list(below string) int {
	var list corev1.ConfigMapList
	must(w.GetList(context.Background(), below, w.options("0"), &list))
	return len(list.Items)
}

func (*watchCache) options(revision string) storage.ListOptions {
	return storage.ListOptions{ResourceVersion: revision, Predicate: storage.Everything, Recursive: true}
}

func (*watchCache) snapshot() any   { return nil }
func (*watchCache) changed(any) int { return 0 }

// close first waits for the last event, since a watch cache that is stopped with events in
// flight never ends, and then for its watchers' goroutines.
func (w *watchCache) close() {
	for w.last != nil && w.read(w.last.Key(), w.last.Revision().String()) != nil {
	}
	w.Stop()
	for range 10_000 {
		if goruntime.NumGoroutine() <= w.goroutines {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// handFed is a storage that has one list, and then the events of a channel.
type handFed struct {
	storage.Interface // methods that the watch cache does not call
	list              []corev1.ConfigMap
	events            chan watch.Event
}

func (s *handFed) GetList(_ context.Context, _ string, _ storage.ListOptions, list runtime.Object) error {
	*list.(*corev1.ConfigMapList) = corev1.ConfigMapList{
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(first)}, Items: s.list,
	}
	return nil
}

func (s *handFed) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return watch.NewProxyWatcher(s.events), nil
}

func (*handFed) IsWatchListSemanticsUnSupported() bool                     { return true }
func (*handFed) RequestWatchProgress(context.Context) error                { return nil }
func (*handFed) GetCurrentResourceVersion(context.Context) (uint64, error) { return first, nil }
func (*handFed) EnableResourceSizeEstimation(storage.KeysFunc) error       { return nil }
func (*handFed) CompactRevision() int64                                    { return 0 }
func (*handFed) Versioner() storage.Versioner                              { return storage.APIObjectVersioner{} }
func (*handFed) ReadinessCheck() error                                     { return nil }
