package follow

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/health"
	"github.com/keepwatch/keepwatch/reflector"
)

// Status returns the follower's status.
func (f *Follower) Status() health.Status {
	p := f.reflector.Progress()
	current := f.store.Snapshot()
	s := health.Status{
		State: health.State(p.State), Since: p.Since, NotLiveSince: p.NotLiveSince,
		Resource: f.resource(), ResourceVersion: f.ResourceVersion(),
		LastEvent: p.LastEvent, LastConfirmed: p.LastConfirmed,
		Relists: p.Relists, Reconnects: p.Reconnects,
		Dropped: p.Dropped, Panics: f.panics.count.Load(),
	}
	s.Objects, s.Rejected = f.applier.lookup.count()
	if p.LastFailure != nil {
		s.LastFailure = p.LastFailure
	}
	if p.State == reflector.Live {
		last := p.Since
		if p.LastEvent.After(last) {
			last = p.LastEvent
		}
		if quiet := last.Add(health.QuietAfter); time.Now().After(quiet) {
			s.State, s.Since = health.Quiet, quiet
		}
	}
	s.Handlers, s.Behind = f.countHandlers(current.Revision())
	return s
}

// resource returns the resource that is read, empty before it is known.
func (f *Follower) resource() schema.GroupVersionResource {
	if f.store.Snapshot().Revision() == 0 {
		return schema.GroupVersionResource{}
	}
	return f.source.Resource()
}

// countHandlers returns the number of handlers, and of those that have not received all
// changes up to a revision and will receive more.
func (f *Follower) countHandlers(newest keepwatch.Revision) (all, lagging int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.handlers {
		if !isClosed(h.done) && !h.progress.reached(newest) {
			lagging++
		}
	}
	return len(f.handlers), lagging
}

// Queued returns how many changes the handler that lags most has yet to receive.
func (f *Follower) Queued() (most int) {
	f.mu.Lock()
	handlers := slices.Collect(maps.Keys(f.handlers))
	f.mu.Unlock()
	for _, h := range handlers {
		most = max(most, h.progress.lag(f.store))
	}
	return most
}

// Latency returns the histogram of the handlers' calls.
func (f *Follower) Latency() (count uint64, sum float64, within map[float64]uint64) {
	return f.latency.histogram()
}
