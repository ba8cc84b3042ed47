package sim

import (
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
)

// listener is a handler of an informer. It folds what it is told, which has to
// follow from what it was told before, step by step.
type listener struct {
	name  string
	react func() // what it does besides, in each call: sleep, panic; nil for nothing

	mu       sync.Mutex
	handle   cache.ResourceEventHandlerRegistration
	state    map[keepwatch.Key]*unstructured.Unstructured
	news     []keepwatch.Change // since it was last looked at
	vague    bool               // one of them is a deletion whose final state is not known
	busy     bool               // it is in a call
	removed  bool
	problems []string
}

// listen adds the handler to an informer.
func (l *listener) listen(to cache.SharedInformer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = map[keepwatch.Key]*unstructured.Unstructured{}
	var err error
	if l.handle, err = to.AddEventHandler(l); err != nil {
		l.wrong("it was not added: %v", err)
	}
}

// leave removes it. It is not in a call.
func (l *listener) leave(from cache.SharedInformer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := from.RemoveEventHandler(l.handle); err != nil {
		l.wrong("it was not removed: %v", err)
	}
	l.removed = true
}

func (l *listener) OnAdd(value any, initial bool) {
	defer l.call("OnAdd")()
	u := value.(*unstructured.Unstructured)
	o := object(u)
	if held := l.state[o.key]; held != nil {
		l.wrong("%v was added, and what was told before is %v", o, object(held))
	}
	if initial == l.handle.HasSynced() {
		l.wrong("%v was added, of the initial list: %v; but that is over: %v", o, initial, !initial)
	}
	l.state[o.key] = u
	l.news = append(l.news, keepwatch.Change{Type: keepwatch.Added, Revision: o.revision, Object: o})
}

func (l *listener) OnUpdate(old, value any) {
	defer l.call("OnUpdate")()
	u := value.(*unstructured.Unstructured)
	o := object(u)
	if held := l.state[o.key]; held == nil || held != old.(*unstructured.Unstructured) || held.GetUID() != u.GetUID() {
		l.wrong("%v replaces %v, and what was told before is %v", o, old, held)
	}
	l.state[o.key] = u
	l.news = append(l.news, keepwatch.Change{Type: keepwatch.Modified, Revision: o.revision, Object: o})
}

func (l *listener) OnDelete(value any) {
	defer l.call("OnDelete")()
	unknown, vague := value.(cache.DeletedFinalStateUnknown)
	if vague {
		value = unknown.Obj
	}
	u, ok := value.(*unstructured.Unstructured)
	if !ok {
		l.wrong("%s is gone without a last known state: %v", unknown.Key, value)
		return
	}
	o := object(u)
	switch held := l.state[o.key]; {
	case held == nil || held.GetUID() != u.GetUID():
		l.wrong("%v is gone, and what was told before is %v", o, held)
	case vague && (held != u || unknown.Key != o.key.String()):
		l.wrong("%v is said to be the last known state of %s, and that is %v", o, unknown.Key, held)
	}
	delete(l.state, o.key)
	l.vague = l.vague || vague
	l.news = append(l.news, keepwatch.Change{Type: keepwatch.Deleted, Revision: o.revision, Object: o})
}

// call begins a call; what it returns ends it, with what the handler does besides.
func (l *listener) call(what string) (end func()) {
	l.mu.Lock()
	if l.removed {
		l.wrong("%s was called behind its removal", what)
	}
	if l.busy {
		l.wrong("%s was called inside another call", what)
	}
	l.busy = true
	return func() {
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			l.busy = false
			l.mu.Unlock()
		}()
		if l.react != nil {
			l.react()
		}
	}
}

func (l *listener) wrong(format string, args ...any) {
	l.problems = append(l.problems, fmt.Sprintf(l.name+": "+format, args...))
}

// told is what it was told since the last time, with the state that this came to;
// ok is false while it is in a call, or has not been told of its initial list.
func (l *listener) told() (news []keepwatch.Change, vague bool, state map[keepwatch.Key]*unstructured.Unstructured, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy || !l.handle.HasSynced() {
		return nil, false, nil, false
	}
	news, vague = l.news, l.vague
	l.news, l.vague = nil, false
	return news, vague, maps.Clone(l.state), true
}
