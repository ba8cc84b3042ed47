package access

import (
	"context"
	"slices"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/server/proxy/internal/personal"
	"github.com/keepwatch/keepwatch/server/proxy/internal/upstream"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/store"
)

// roles follows the roles and bindings of the server, and makes permissions forget the decisions that a change of one
// of them may change. It keeps their digests alone.
type roles struct {
	permissions *permissions
	reflectors  []*reflector.Reflector
	stores      []*store.Store
	// granted has what personal views need, nil without them. touched is called with the subjects that changes concern;
	// with false if that may be anybody. unseen is called when changes are no longer seen.
	granted *personal.Roles
	touched func(subjects map[string]bool, ok bool)
	unseen  func()

	mu sync.Mutex // locked while it is decided whether changes are seen, so that a failure is not overtaken
}

func newRoles(server *rest.Config, p *permissions, forPersonal bool) (*roles, error) {
	r := &roles{permissions: p, touched: func(map[string]bool, bool) {}, unseen: func() {}}
	decode := decodeRole
	if forPersonal {
		decode = decodeGrant
	}
	for _, name := range []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"} {
		source, err := upstream.NewVerified(server,
			kube.Options{Resource: rbacv1.SchemeGroupVersion.WithResource(name), Decode: decode})
		if err != nil {
			return nil, err
		}
		objects := store.New(store.Options{})
		r.stores = append(r.stores, objects)
		r.reflectors = append(r.reflectors, reflector.New(source, objects, reflector.Options{StartupDeadline: -1,
			Observe: r.failed}))
	}
	if forPersonal {
		r.granted = &personal.Roles{Bindings: r.stores[1], ClusterRoles: r.stores[2], ClusterBindings: r.stores[3]}
		for _, bindings := range []*store.Store{r.granted.Bindings, r.granted.ClusterBindings} {
			if err := personal.Index(bindings); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// touch lets personal views whose roles have changed be decided again.
func (r *roles) touch(changes []keepwatch.Change) {
	if r.granted == nil {
		return
	}
	changes = slices.DeleteFunc(slices.Clone(changes), func(c keepwatch.Change) bool { return !changesGrants(c) })
	if len(changes) > 0 {
		r.touched(r.granted.Touched(changes))
	}
}

// failed records that changes are not seen until the reflector is live again.
func (r *roles) failed(n reflector.Notice) {
	if n.Failure != nil && n.State != reflector.Live {
		r.record(func() bool { return false })
	}
}

// record records whether changes are seen.
func (r *roles) record(observed func() bool) {
	r.mu.Lock()
	now := observed()
	changed := r.permissions.observe(now)
	r.mu.Unlock()
	switch {
	case !changed:
	case now:
		r.touched(nil, false) // a change may have been undone unseen
	default:
		r.unseen()
	}
}

// observeEvery is how often it is looked whether all reflectors are live. Nothing reports that, and where nothing
// changes no delivery follows it.
const observeEvery = time.Second

// observe records whether changes are seen.
func (r *roles) observe() {
	r.record(func() bool { return !slices.ContainsFunc(r.reflectors, notLive) })
}

func (r *roles) observeAlways(ctx context.Context) {
	for tick := time.NewTicker(observeEvery); ; r.observe() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return
		}
	}
}

// run follows until ctx ends.
func (r *roles) run(ctx context.Context) {
	var running sync.WaitGroup
	for i := range r.reflectors {
		running.Go(func() { _ = r.reflectors[i].Run(ctx) }) // without changes seen, decisions are short-lived
		running.Go(func() { r.watch(ctx, r.stores[i]) })
	}
	running.Go(func() { r.observeAlways(ctx) })
	running.Wait()
}

// maxForgotten bounds the namespaces of one delivery that are forgotten each by itself. Beyond it, all are.
const maxForgotten = 100

// watch makes permissions forget at each change.
func (r *roles) watch(ctx context.Context, objects *store.Store) {
	watcher := objects.Watch(objects.Snapshot().Cursor(), store.Filter{})
	for {
		delivery, err := watcher.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		changes := changesOf(delivery)
		if err != nil { // the history of changes is lost, not the fact that there were some
			watcher = objects.Watch(objects.Snapshot().Cursor(), store.Filter{})
			changes = nil
			r.permissions.forget("")
			r.touched(nil, false)
		}
		for namespace := range concerned(changes) {
			r.permissions.forget(namespace)
		}
		r.touch(changes)
		r.observe()
	}
}

func changesOf(delivery keepwatch.Delivery) []keepwatch.Change {
	switch delivery := delivery.(type) {
	case keepwatch.Batch:
		return delivery.Changes
	case keepwatch.Gap:
		return delivery.Changes
	}
	return nil
}

// concerned returns the namespaces about which changes may change decisions; the empty one stands for all. Roles and
// bindings of a namespace decide about that namespace alone.
func concerned(changes []keepwatch.Change) map[string]bool {
	namespaces := map[string]bool{}
	for _, c := range changes {
		if changesGrants(c) {
			namespaces[c.Object.Key().Namespace] = true
		}
	}
	if namespaces[""] || len(namespaces) > maxForgotten {
		return map[string]bool{"": true}
	}
	return namespaces
}

func notLive(r *reflector.Reflector) bool { return r.Progress().State != reflector.Live }

// answered reports whether the server has ever answered the proxy's requests, be it that the proxy may not read roles.
func (r *roles) answered() bool {
	return slices.ContainsFunc(r.reflectors, func(r *reflector.Reflector) bool {
		p := r.Progress()
		return !p.LastConfirmed.IsZero() || p.State == reflector.Forbidden
	})
}
