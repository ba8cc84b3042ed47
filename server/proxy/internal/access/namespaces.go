package access

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/server/proxy/internal/upstream"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/store"
)

var namespacesResource = schema.GroupResource{Resource: "namespaces"}

// namespaces follows the names and UIDs of the server's namespaces. It makes permissions forget the decisions about one
// that is deleted: one of the same name is another one.
type namespaces struct {
	permissions *permissions
	reflector   *reflector.Reflector
	store       *store.Store
	// changed is called with those that have come or gone, and without if any may have, or if they are refused.
	changed func(namespaces ...string)
	last    atomic.Pointer[namespaceUIDs]
	denials int         // in a row; failed alone uses it
	denied  atomic.Bool // the last denial counts
}

// namespaceUIDs are the UIDs of a state by name. They are not changed.
type namespaceUIDs struct {
	of   *store.Snapshot
	uids map[string]keepwatch.UID
}

// namespace is what is kept of one.
type namespace struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
}

// Key returns the name.
func (n namespace) Key() keepwatch.Key { return n.key }

// UID returns the UID.
func (n namespace) UID() keepwatch.UID { return n.uid }

// Revision returns the resourceVersion.
func (n namespace) Revision() keepwatch.Revision { return n.revision }

func newNamespaces(server *rest.Config, p *permissions) (*namespaces, error) {
	source, err := upstream.NewVerified(server, kube.Options{
		Resource: namespacesResource.WithVersion("v1"),
		Decode: func(raw kube.Raw) (keepwatch.Object, error) {
			return namespace{raw.Key, raw.UID, raw.Revision}, nil
		},
	})
	if err != nil {
		return nil, err
	}
	n := &namespaces{permissions: p, store: store.New(store.Options{}), changed: func(...string) {}}
	n.reflector = reflector.New(source, n.store, reflector.Options{StartupDeadline: -1, Observe: n.failed})
	return n, nil
}

// run follows until ctx ends. A nil *namespaces follows nothing.
func (n *namespaces) run(ctx context.Context) {
	if n == nil {
		return
	}
	var running sync.WaitGroup
	running.Go(func() { _ = n.reflector.Run(ctx) }) // without it there are no personal views
	running.Go(func() { n.watch(ctx) })
	running.Wait()
}

func (n *namespaces) watch(ctx context.Context) {
	watcher := n.store.Watch(n.store.Snapshot().Cursor(), store.Filter{})
	for {
		delivery, err := watcher.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil { // the history of changes is lost
			watcher = n.store.Watch(n.store.Snapshot().Cursor(), store.Filter{})
			n.permissions.forget("")
			n.changed()
			continue
		}
		var changed []string
		for _, c := range changesOf(delivery) {
			if c.Type == keepwatch.Modified && c.Prior != nil && c.Prior.UID() == c.Object.UID() {
				continue
			}
			name := c.Object.Key().Name
			if changed = append(changed, name); c.Type != keepwatch.Added {
				n.permissions.forget(name)
			}
		}
		if len(changed) > 0 {
			n.changed(changed...)
		}
	}
}

// failed records whether the server refuses the namespaces to the proxy. A denial counts when the server repeats it
// while it is ready: one that starts denies what it will allow. Until one counts, each delays the reflector, which
// waits anyway, by a probe: no longer than a review takes.
func (n *namespaces) failed(notice reflector.Notice) {
	if notice.Failure == nil || notice.Failure.Kind != keepwatch.Forbidden {
		n.denials = 0
		n.denied.Store(false)
		return
	}
	n.denials++
	if n.denials < 2 || n.denied.Load() || n.permissions.probe.Ready(context.Background()) != nil {
		return
	}
	n.denied.Store(true)
	klog.ErrorS(notice.Failure, "The proxy may not list and watch namespaces: there are no personal views")
	n.changed()
}

// errNoNamespaces is why the namespaces are not known.
var errNoNamespaces = errors.New("the namespaces are not listed yet, or may not be")

// uids returns the UIDs by name, which the caller does not change. All personal views ask for them after a change.
func (n *namespaces) uids() (map[string]keepwatch.UID, error) {
	now := n.store.Snapshot()
	if now.Revision() == 0 || n.refused() {
		return nil, errNoNamespaces
	}
	if last := n.last.Load(); last != nil && last.of == now {
		return last.uids, nil
	}
	all := make(map[string]keepwatch.UID, now.Len())
	for o := range now.All() {
		all[o.Key().Name] = o.UID()
	}
	n.last.Store(&namespaceUIDs{now, all})
	return all, nil
}

// refused reports whether the proxy may not list and watch the namespaces.
func (n *namespaces) refused() bool {
	return n.denied.Load() && n.reflector.Progress().State == reflector.Forbidden
}
