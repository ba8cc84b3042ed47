package health

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Member is an informer of a [Group]. Its methods may be called from any goroutine.
type Member interface {
	// Name names what the informer reads. Several members may have the same name.
	Name() string
	// Status returns the informer's status.
	Status() Status
	// Queued returns how many changes the handler that lags most has yet to receive.
	Queued() int
	// Latency returns a histogram of the handlers' calls: their number, the sum of their
	// durations in seconds, and for each upper bound the number of calls within it.
	Latency() (count uint64, sum float64, within map[float64]uint64)
}

// Group reports the health and the metrics of informers while they run. It is a
// healthz.Checker, an http.Handler and a prometheus.Collector. It may be used from any
// goroutine.
type Group struct {
	mu      sync.Mutex
	members map[Member]string // their names, unique in the group
	// failed has the failures of removed members by name, until another member has that
	// name.
	failed map[string]error
}

// NewGroup returns a group without members.
func NewGroup() *Group {
	return &Group{members: map[Member]string{}, failed: map[string]error{}}
}

// Add adds an informer that begins to run. If a member has its name, a number is appended.
// Add is for informers; other code does not call it.
func (g *Group) Add(m Member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	used := map[string]bool{}
	for _, name := range g.members {
		used[name] = true
	}
	name := m.Name()
	for i := 2; used[name]; i++ {
		name = fmt.Sprintf("%s#%d", m.Name(), i)
	}
	g.members[m] = name
	delete(g.failed, name)
}

// Remove removes an informer that has stopped. Check returns failure until another member
// has the informer's name; nil is no failure. Remove is for informers; other code does not
// call it.
func (g *Group) Remove(m Member, failure error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if failure != nil {
		g.failed[g.members[m]] = failure
	}
	delete(g.members, m)
}

// Status returns the status of each running informer by its name.
func (g *Group) Status() map[string]Status {
	all := map[string]Status{}
	for m, name := range g.running() {
		all[name] = m.Status()
	}
	return all
}

// running returns the informers that run, and their names.
func (g *Group) running() map[Member]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.members)
}

// grace is how long an informer may not follow its resource before Check fails: an API
// server restarts in less.
const grace = 2 * time.Minute

// Check returns an error that names each running informer that has not followed its
// resource for two minutes, with the reason. It also names each informer of package
// clientgo that has stopped by itself, as after its startup deadline, until the group has
// another one with that name: its owner receives no error. Check does not fail because
// nothing changes on the server. It is a healthz.Checker, and ignores the request.
func (g *Group) Check(*http.Request) error {
	failures := g.failures()
	for name, status := range g.Status() {
		if err := status.Healthy(grace); err != nil {
			failures[name] = err
		}
	}
	var all []error
	for _, name := range slices.Sorted(maps.Keys(failures)) {
		all = append(all, fmt.Errorf("informer %s: %w", name, failures[name]))
	}
	return errors.Join(all...)
}

// failures returns the failures of stopped informers by name.
func (g *Group) failures() map[string]error {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make(map[string]error, len(g.failed))
	for name, err := range g.failed {
		all[name] = fmt.Errorf("%s: %w", Stopped, err)
	}
	return all
}

// ServeHTTP answers 200 with "ok", or 500 with the error of Check.
func (g *Group) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err := g.Check(r); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}
