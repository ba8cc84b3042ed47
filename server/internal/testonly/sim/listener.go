package sim

import (
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
)

// listener is a handler of an informer. It folds its notifications, and checks that each
// follows from the ones before.
type listener struct {
	name string
	then func() // called at the end of each call: sleeps or panics; may be nil

	mu           sync.Mutex
	handle       cache.ResourceEventHandlerRegistration
	state        map[keepwatch.Key]*unstructured.Unstructured
	changes      []keepwatch.Change // since the last received
	finalUnknown bool               // one of changes is a DeletedFinalStateUnknown
	busy         bool               // a call runs
	removed      bool
	problems     []string
}

// register adds the handler to an informer.
func (l *listener) register(to cache.SharedInformer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = map[keepwatch.Key]*unstructured.Unstructured{}
	var err error
	if l.handle, err = to.AddEventHandler(l); err != nil {
		l.problem("it was not added: %v", err)
	}
}

// remove removes it. No call may run.
func (l *listener) remove(from cache.SharedInformer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := from.RemoveEventHandler(l.handle); err != nil {
		l.problem("it was not removed: %v", err)
	}
	l.removed = true
}

func (l *listener) OnAdd(value any, initial bool) {
	defer l.call("OnAdd")()
	u := value.(*unstructured.Unstructured)
	o := object(u)
	if current := l.state[o.key]; current != nil {
		l.problem("%v was added, but the state is %v", o, object(current))
	}
	if initial == l.handle.HasSynced() {
		l.problem("%v was added with isInInitialList %v, but HasSynced is %v", o, initial, !initial)
	}
	l.state[o.key] = u
	l.changes = append(l.changes, keepwatch.Change{Type: keepwatch.Added, Revision: o.revision, Object: o})
}

func (l *listener) OnUpdate(old, value any) {
	defer l.call("OnUpdate")()
	u := value.(*unstructured.Unstructured)
	o := object(u)
	if current := l.state[o.key]; current == nil || current != old.(*unstructured.Unstructured) ||
		current.GetUID() != u.GetUID() {
		l.problem("%v replaces %v, but the state is %v", o, old, current)
	}
	l.state[o.key] = u
	l.changes = append(l.changes, keepwatch.Change{Type: keepwatch.Modified, Revision: o.revision, Object: o})
}

func (l *listener) OnDelete(value any) {
	defer l.call("OnDelete")()
	unknown, finalUnknown := value.(cache.DeletedFinalStateUnknown)
	if finalUnknown {
		value = unknown.Obj
	}
	u, ok := value.(*unstructured.Unstructured)
	if !ok {
		l.problem("%s was deleted without a last known state: %v", unknown.Key, value)
		return
	}
	o := object(u)
	switch current := l.state[o.key]; {
	case current == nil || current.GetUID() != u.GetUID():
		l.problem("%v was deleted, but the state is %v", o, current)
	case finalUnknown && (current != u || unknown.Key != o.key.String()):
		l.problem("%v is the last known state of %s, but the state is %v", o, unknown.Key, current)
	}
	delete(l.state, o.key)
	l.finalUnknown = l.finalUnknown || finalUnknown
	l.changes = append(l.changes, keepwatch.Change{Type: keepwatch.Deleted, Revision: o.revision, Object: o})
}

// call begins a call. The function that it returns ends it, and calls then.
func (l *listener) call(what string) (end func()) {
	l.mu.Lock()
	if l.removed {
		l.problem("%s was called after its removal", what)
	}
	if l.busy {
		l.problem("%s was called during another call", what)
	}
	l.busy = true
	return func() {
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			l.busy = false
			l.mu.Unlock()
		}()
		if l.then != nil {
			l.then()
		}
	}
}

func (l *listener) problem(format string, args ...any) {
	l.problems = append(l.problems, fmt.Sprintf(l.name+": "+format, args...))
}

// received returns the changes since its last call and the state after them. ok is false
// while a call runs or before the initial list was delivered.
func (l *listener) received() (news []keepwatch.Change, finalUnknown bool,
	state map[keepwatch.Key]*unstructured.Unstructured, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy || !l.handle.HasSynced() {
		return nil, false, nil, false
	}
	news, finalUnknown = l.changes, l.finalUnknown
	l.changes, l.finalUnknown = nil, false
	return news, finalUnknown, maps.Clone(l.state), true
}
