package operators

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/server/routine"
)

type openWatch struct {
	resource string
	cancel   context.CancelFunc
	aborted  bool
	ofPast   bool
}

// watch serves a watch that can be cut. The handler may return with a task that serves it.
func (t *traffic) watch(w http.ResponseWriter, q *http.Request, next http.Handler) {
	ctx, cancel := context.WithCancel(q.Context())
	open := &openWatch{resource: placeOf(infoOf(q), "").Resource, cancel: cancel}
	past := t.pastFor(q)
	t.mu.Lock()
	open.ofPast = past != nil
	t.watches[open] = struct{}{}
	t.mu.Unlock()
	context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.watches, open)
	})
	if past != nil {
		next = past
	}
	end := func() {
		defer cancel()
		t.mu.Lock()
		aborted := open.aborted
		t.mu.Unlock()
		if aborted {
			panic(http.ErrAbortHandler)
		}
	}
	next.ServeHTTP(responsewriter.WrapForHTTP1Or2(punctual{w, ctx, t, open.resource}), q.WithContext(ctx))
	if !routine.AppendTask(q.Context(), &routine.Task{Func: end}) {
		end()
	}
}

// watched returns the resources of open watches.
func (t *traffic) watched() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]bool{}
	for open := range t.watches {
		all[open.resource] = true
	}
	return all
}

func anyWatch(*openWatch) bool { return true }

// cut breaks some of the watches that are open.
func (t *traffic) cut(some func(*openWatch) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for open := range t.watches {
		if some(open) {
			open.aborted = true
			open.cancel()
		}
	}
}

// forgetWatches breaks the watches of the last instance, which is dead. The server may notice that later, and until
// then the operator that starts would seem to be quiet.
func (t *traffic) forgetWatches() {
	t.cut(anyWatch)
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.watches)
}

// hold makes the operator's requests wait until resume, and breaks its watches.
func (t *traffic) hold() {
	t.holdOthers()
	t.cut(anyWatch)
}

// holdOthers makes the operator's next requests wait until resume: between the answer to a write and the end of the
// operator, none may be executed.
func (t *traffic) holdOthers() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pause == nil {
		t.pause = make(chan struct{})
	}
}

func (t *traffic) resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pause != nil {
		close(t.pause)
		t.pause = nil
	}
}

// end lets every request end, since a server waits for them.
func (t *traffic) end() {
	t.resume()
	t.deliver()
	t.cut(anyWatch)
}
