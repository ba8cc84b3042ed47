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

// history is what etcd was told since the beginning, kept beyond compactions: the
// judge of answers that only one server can give.
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

// reaches says whether everything up to a revision is recorded. If not it asks
// etcd, which tells nothing of revisions without changes by itself.
func (h *history) reaches(ctx context.Context, revision int64) (bool, error) {
	h.mu.Lock()
	reached := h.revision >= revision
	h.mu.Unlock()
	if reached {
		return true, nil
	}
	return false, h.etcd.RequestProgress(ctx)
}

// place is where etcd has a collection, below /registry/: a resource's objects, or
// those of one namespace.
type place struct{ resource, namespace string }

// placeOf is where etcd has what is at a path.
func placeOf(path string) (place, bool) {
	for _, r := range append([]resource{namespaceResource, olderWidgetResource}, written...) {
		rest, ok := strings.CutPrefix(path, r.root()+"/")
		if !ok {
			continue
		}
		p := place{resource: r.stored()}
		if r.namespaced && strings.HasPrefix(rest, "namespaces/") {
			p.namespace, rest, _ = strings.Cut(strings.TrimPrefix(rest, "namespaces/"), "/")
		}
		if rest == r.name {
			return p, true
		}
	}
	return place{}, false
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
func (p place) name(key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, p.resource+"/")
	namespace, name, namespaced := strings.Cut(rest, "/")
	if !namespaced {
		namespace, name = "", rest
	}
	return namespace + "/" + name, ok && (p.namespace == "" || p.namespace == namespace)
}

// since is the changes in p in (from, to].
func (h *history) since(p place, from, to int64) []string {
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
func (h *history) at(p place, revision int64) []string {
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

// contradiction is the place of a difference between an answer and the history.
const contradiction = "not what etcd was told"

// contradicts says in what an answer is not what etcd was told: the events since a
// revision, or the objects at one. Pieces of lists, selections and tables can't be
// judged.
func (h *history) contradicts(r Request, a Answer, now int64) []Difference {
	p, ok := placeOf(r.Path)
	if o := r.Options; !ok || o.Has("limit") || o.Has("continue") || o.Get("labelSelector") != "" || o.Get("fieldSelector") != "" ||
		strings.Contains(r.Accept, "as=") {
		return nil
	}
	var said, was []string
	if a.Streamed {
		said, was = a.changes(), h.since(p, r.revision(), now)
	} else {
		said, was = a.objects(), h.at(p, r.revision())
	}
	if slices.Equal(said, was) {
		return nil
	}
	return []Difference{{contradiction, excerpt(was), excerpt(said)}}
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
