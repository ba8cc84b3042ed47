package differential

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/watch"
)

// history has all writes from etcd's watch since the beginning, also those that etcd has
// compacted. It judges the answers for which only one server has the history.
type history struct {
	etcd *clientv3.Client
	done chan struct{} // closed when nothing is recorded any more

	mu      sync.Mutex
	changes []change
	// revision is the one up to which changes is whole.
	revision int64
}

// change is one object's new state, or its end.
type change struct {
	key      string // below /registry/
	revision int64
	what     watch.EventType
}

// record follows etcd until ctx ends.
func record(ctx context.Context, etcd *clientv3.Client) *history {
	h := &history{etcd: etcd, done: make(chan struct{})}
	go func() {
		defer close(h.done)
		for message := range etcd.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
			h.add(message)
		}
	}()
	return h
}

func (h *history) add(message clientv3.WatchResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revision = message.Header.Revision
	for _, e := range message.Events {
		c := change{strings.TrimPrefix(string(e.Kv.Key), "/registry/"), e.Kv.ModRevision, watch.Modified}
		switch {
		case e.Type == clientv3.EventTypeDelete:
			c.what = watch.Deleted
		case e.IsCreate():
			c.what = watch.Added
		}
		h.changes = append(h.changes, c)
	}
}

// reaches reports whether all writes up to a revision are recorded. If not, it requests
// progress from etcd, whose watch is silent about revisions without changes.
func (h *history) reaches(ctx context.Context, revision int64) (bool, error) {
	h.mu.Lock()
	reached := h.revision >= revision
	h.mu.Unlock()
	if reached {
		return true, nil
	}
	return false, h.etcd.RequestProgress(ctx)
}

// scope is a collection's location in etcd, below /registry/: a resource's objects, or
// those of one namespace.
type scope struct{ resource, namespace string }

// scopeOf returns the location in etcd of a path's collection.
func scopeOf(path string) (scope, bool) {
	for _, r := range append([]resource{namespaceResource, olderWidgetResource}, written...) {
		rest, ok := strings.CutPrefix(path, r.root()+"/")
		if !ok {
			continue
		}
		p := scope{resource: r.stored()}
		if r.namespaced && strings.HasPrefix(rest, "namespaces/") {
			p.namespace, rest, _ = strings.Cut(strings.TrimPrefix(rest, "namespaces/"), "/")
		}
		if rest == r.name {
			return p, true
		}
	}
	return scope{}, false
}

// stored is where etcd has a resource's objects, below /registry/.
func (r resource) stored() string {
	switch {
	case r.name == nodeResource.name:
		return "minions"
	case r.group != "":
		return r.group + "/" + r.name
	}
	return r.name
}

// name is the namespace and name of the object at a key, if it is in p.
func (p scope) name(key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, p.resource+"/")
	namespace, name, namespaced := strings.Cut(rest, "/")
	if !namespaced {
		namespace, name = "", rest
	}
	return namespace + "/" + name, ok && (p.namespace == "" || p.namespace == namespace)
}

// since is the changes in p in (from, to].
func (h *history) since(p scope, from, to int64) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, c := range h.changes {
		if name, ok := p.name(c.key); ok && from < c.revision && c.revision <= to {
			all = append(all, fmt.Sprintf("%s %s@%d", c.what, name, c.revision))
		}
	}
	return all
}

// at is the objects in p at a revision, in the order of lists.
func (h *history) at(p scope, revision int64) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	state := map[string]int64{}
	for _, c := range h.changes {
		name, ok := p.name(c.key)
		switch {
		case !ok || c.revision > revision:
		case c.what == watch.Deleted:
			delete(state, name)
		default:
			state[name] = c.revision
		}
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(state)) {
		all = append(all, fmt.Sprintf("%s@%d", name, state[name]))
	}
	return all
}

// contradiction is the location of a difference between an answer and the history.
const contradiction = "not in etcd's history"

// contradicts returns the differences between an answer and the history: the events since
// a revision, or the objects at one. Pages of lists, selections and tables cannot be
// judged.
func (h *history) contradicts(r Request, a Answer, now int64) []Difference {
	p, ok := scopeOf(r.Path)
	if o := r.Options; !ok || o.Has("limit") || o.Has("continue") || o.Get("labelSelector") != "" ||
		o.Get("fieldSelector") != "" ||
		strings.Contains(r.Accept, "as=") {
		return nil
	}
	var got, was []string
	if a.Streamed {
		got, was = a.changes(), h.since(p, r.revision(), now)
	} else {
		got, was = a.objects(), h.at(p, r.revision())
	}
	if slices.Equal(got, was) {
		return nil
	}
	return []Difference{{contradiction, excerpt(was), excerpt(got)}}
}

// changes is the events of a stream.
func (a Answer) changes() []string {
	var all []string
	for _, e := range a.Events {
		if e.Type != watch.Bookmark {
			all = append(all, string(e.Type)+" "+subject(e.Object))
		}
	}
	return all
}

// objects is the items of a list.
func (a Answer) objects() []string {
	var list struct{ Items []json.RawMessage }
	if json.Unmarshal(readable(mediaType(a.Header), a.Body), &list) != nil {
		return []string{"no list"}
	}
	var all []string
	for _, item := range list.Items {
		all = append(all, subject(item))
	}
	return all
}
