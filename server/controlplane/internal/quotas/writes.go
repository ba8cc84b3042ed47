package quotas

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apiserver/pkg/admission"
)

// Writes are the writes that the plugin counts and the controller's informers do not have yet. A status computed
// without them would be too low, and more would be admitted than the quota allows. The zero value is ready. Its methods
// can be called concurrently.
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
	obj metav1.Object // as it will be stored; never changed
	// since is the resourceVersion of the object before the write; empty if it is created.
	since string
	// counted is set before a quota's status may have what the object uses.
	counted bool
}

// begin adds a write that the plugin evaluates. It is removed when an informer has its result, or settleTime after its
// request has ended: it may have failed, or nobody follows the resource. The returned function removes a write that is
// refused.
func (w *Writes) begin(ctx context.Context, a admission.Attributes) (refused func()) {
	obj, ok := a.GetObject().(metav1.Object)
	if !ok || obj.GetUID() == "" { // a subresource like pods/binding, which uses nothing
		return func() {}
	}
	in := scope{a.GetNamespace(), a.GetResource().GroupResource()}
	added := &write{obj: obj}
	if old, ok := a.GetOldObject().(metav1.Object); ok && a.GetOperation() == admission.Update {
		added.since = old.GetResourceVersion()
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
		w.mu.Lock()
		defer w.mu.Unlock()
		w.remove(in, added)
	}
	ended := context.AfterFunc(ctx, func() { time.AfterFunc(settleTime, remove) })
	return func() {
		ended()
		remove()
	}
}

// count marks the writes in a namespace as counted. Some of them may still be refused.
func (w *Writes) count(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for in, writes := range w.pending {
		if in.namespace != namespace {
			continue
		}
		for o := range writes {
			o.counted = true
		}
	}
}

// seen removes the writes of an object that an informer has.
func (w *Writes) seen(of schema.GroupResource, obj metav1.Object) {
	in := scope{obj.GetNamespace(), of}
	w.mu.Lock()
	defer w.mu.Unlock()
	for o := range w.pending[in] {
		if o.isIn(obj) {
			w.remove(in, o)
		}
	}
}

// isIn reports whether an object is the result of the write, or of a later one.
func (o *write) isIn(obj metav1.Object) bool {
	if o.obj.GetUID() != obj.GetUID() {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(o.since, obj.GetResourceVersion())
	return o.since == "" || err == nil && order < 0
}

// remove is called with the lock.
func (w *Writes) remove(in scope, o *write) {
	delete(w.pending[in], o)
	if len(w.pending[in]) == 0 {
		delete(w.pending, in)
	}
}

// counted returns the writes of a resource in a namespace that the plugin has counted.
func (w *Writes) counted(namespace string, of schema.GroupResource) (all []*write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for o := range w.pending[scope{namespace, of}] {
		if o.counted {
			all = append(all, o)
		}
	}
	return all
}

// applied returns objects as they will be after some writes.
func applied(writes []*write, objects []runtime.Object) []runtime.Object {
	if len(writes) == 0 {
		return objects
	}
	at := make(map[types.UID]int, len(objects))
	for i, obj := range objects {
		at[obj.(metav1.Object).GetUID()] = i
	}
	for _, o := range writes {
		obj := o.obj.(runtime.Object)
		switch i, known := at[o.obj.GetUID()]; {
		case !known:
			at[o.obj.GetUID()] = len(objects)
			objects = append(objects, obj)
		case !o.isIn(objects[i].(metav1.Object)):
			objects[i] = obj
		}
	}
	return objects
}
