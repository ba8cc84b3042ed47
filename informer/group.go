package informer

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// Group makes informers that share options, and watches over their health as long
// as they run. It is where informers can be asked for their state that somebody
// else has made, like a manager's cache:
//
//	group := informer.NewGroup()
//	manager.New(cfg, manager.Options{Cache: cache.Options{NewInformer: group.NewSharedIndexInformer}})
//	metrics.Registry.MustRegister(group)
//	mgr.AddHealthzCheck("informers", group.Check)
//
// It may be used from any goroutine.
type Group struct {
	settings

	mu      sync.Mutex
	members map[*follower]string // their names, unique in the group
	// failed is why an informer has stopped that nobody had asked to, and whose owner is
	// not told, by its name: until another one has that name.
	failed map[string]error
}

// NewGroup makes a group.
func NewGroup(options ...Option) *Group {
	return &Group{settings: settle(options), members: map[*follower]string{}, failed: map[string]error{}}
}

// NewSharedIndexInformer makes an informer of the group; see the function of the
// same name.
func (g *Group) NewSharedIndexInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	return newShared(lw, example, resync, indexers, g)
}

// enter adds an informer that begins to run. Of several with one name the later
// ones have a number behind it.
func (g *Group) enter(f *follower) {
	g.mu.Lock()
	defer g.mu.Unlock()
	taken := map[string]bool{}
	for _, name := range g.members {
		taken[name] = true
	}
	name := f.name
	for i := 2; taken[name]; i++ {
		name = fmt.Sprintf("%s#%d", f.name, i)
	}
	g.members[f] = name
	delete(g.failed, name)
}

// leave takes an informer out that has stopped, and remembers why, unless that is nil.
func (g *Group) leave(f *follower, failure error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if failure != nil {
		g.failed[g.members[f]] = failure
	}
	delete(g.members, f)
}

// Status is what the running informers of the group say of themselves, by their
// names.
func (g *Group) Status() map[string]Status {
	all := map[string]Status{}
	for f, name := range g.running() {
		all[name] = f.status()
	}
	return all
}

// running are the informers that run, and their names.
func (g *Group) running() map[*follower]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.members)
}

// patience is how long an informer may be without progress before it counts as
// unhealthy: an API server takes less to restart.
const patience = 2 * time.Minute

// Check fails when one of the running informers has made no progress for two
// minutes, and says which and why. It never fails because nothing happens on the
// server. It also fails for a [Shared] informer that has stopped by itself, as after
// [StartupDeadline], until the group has another one of the same name running: nobody
// else is told. It has the form of a healthz.Checker and ignores the request.
func (g *Group) Check(*http.Request) error {
	sick := g.failures()
	for name, status := range g.Status() {
		if err := status.Healthy(patience); err != nil {
			sick[name] = err
		}
	}
	var all []error
	for _, name := range slices.Sorted(maps.Keys(sick)) {
		all = append(all, fmt.Errorf("informer %s: %w", name, sick[name]))
	}
	return errors.Join(all...)
}

// failures are why informers have stopped, by their names.
func (g *Group) failures() map[string]error {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make(map[string]error, len(g.failed))
	for name, err := range g.failed {
		all[name] = fmt.Errorf("%s: %w", Stopped, err)
	}
	return all
}

// ServeHTTP answers 200 with "ok", or 500 with what Check says.
func (g *Group) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err := g.Check(r); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}
