package quotas

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"github.com/keepwatch/keepwatch"
)

// Writes are the writes that the plugin counts and the controller's informers do not have yet. A status computed meanwhile would
// lack them, and more would be admitted than the quota allows. The zero value is ready. Its methods can be called concurrently.
type Writes struct {
	mu      sync.Mutex
	pending map[scope]map[*write]struct{} // no empty sets
}

// scope is a resource in a namespace.
type scope struct {
	namespace string
	of        schema.GroupResource
}

// write is a creation or an update of an object.
type write struct {
	uid types.UID
	// since is the revision of the object before the write; zero if it is created.
	since keepwatch.Revision
}

// begin adds a write. It is removed when an informer has its result, or a while after its request has ended: it may have failed,
// or nobody follows the resource. The returned function removes a write that is refused.
func (w *Writes) begin(ctx context.Context, a admission.Attributes) (refused func()) {
	obj, ok := a.GetObject().(metav1.Object)
	if !ok || obj.GetUID() == "" { // a subresource like pods/binding, which uses nothing
		return func() {}
	}
	added, in := &write{uid: obj.GetUID()}, scope{a.GetNamespace(), a.GetResource().GroupResource()}
	if old, ok := a.GetOldObject().(metav1.Object); ok && a.GetOperation() == admission.Update {
		added.since = revisionOf(old)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending == nil {
		w.pending = map[scope]map[*write]struct{}{}
	}
	if w.pending[in] == nil {
		w.pending[in] = map[*write]struct{}{}
	}
	w.pending[in][added] = struct{}{}
	remove := func() {
		w.remove(in, func(o *write) bool { return o == added })
	}
	ended := context.AfterFunc(ctx, func() { time.AfterFunc(settleTime, remove) })
	return func() {
		ended()
		remove()
	}
}

// seen removes the writes of an object that an informer has.
func (w *Writes) seen(of schema.GroupResource, obj metav1.Object) {
	uid, revision := obj.GetUID(), revisionOf(obj)
	w.remove(scope{obj.GetNamespace(), of}, func(o *write) bool { return o.uid == uid && o.since < revision })
}

func (w *Writes) remove(in scope, which func(*write) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for o := range w.pending[in] {
		if which(o) {
			delete(w.pending[in], o)
		}
	}
	if len(w.pending[in]) == 0 {
		delete(w.pending, in)
	}
}

// any reports whether there is a write of a resource in a namespace.
func (w *Writes) any(namespace string, of schema.GroupResource) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pending[scope{namespace, of}]) > 0
}

// revisionOf returns an object's revision; zero if it has none, as one that is being created.
func revisionOf(obj metav1.Object) keepwatch.Revision {
	revision, _ := keepwatch.ParseRevision(obj.GetResourceVersion())
	return revision
}
