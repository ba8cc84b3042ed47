package transfer

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/backoff"
	"github.com/keepwatch/keepwatch/internal/pause"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Resource is one resource that is transferred.
type Resource struct {
	sink.Stream
	Source keepwatch.Source
	// Project, if set, returns what is stored in place of an object's JSON. It must not change
	// its argument.
	Project func(object []byte) ([]byte, error)
	// Patient is true for a resource whose refusal at the start (no permission, unknown type) is retried as a later
	// one is, and does not end the transfer.
	Patient bool
	// Gone, if set, is a revision at which the server had no such resource any more: what was delivered of it is
	// delivered as deleted (see [stream.Stream.End]), and then the transfer forgets the resource. Source is not used.
	Gone keepwatch.Revision
}

// kind returns the kind of the objects, empty if it is not known.
func (r Resource) kind() schema.GroupVersionKind {
	if r.Type == nil {
		return schema.GroupVersionKind{}
	}
	return schema.ParseGroupResource(r.ID.Resource).WithVersion(r.Type.Version).GroupVersion().WithKind(r.Type.Kind)
}

// Options configure a transfer. The zero value is ready for use. The functions are called
// one at a time.
type Options struct {
	// Opened, if set, is called with the resources each time the sink is open, before anything is delivered to it.
	// Numbers of resources, also in batches, are indexes of the last ones.
	Opened func(resources []Resource)
	// Observe, if set, is called with each notice of the reflector of a resource.
	Observe func(resource int, notice reflector.Notice)
	// Retrying, if set, is called with each error of the sink after which another attempt follows, and the wait before it.
	Retrying func(err error, wait time.Duration)
	// Refused, if set, is called with the reason of each dead letter.
	Refused func(err error)
	// Expired, if set, is called with the states that the sink has deleted by its options.
	Expired func(sink.Expiry)
	// Committed, if set, is called after each batch.
	Committed func(sink.Batch)
	// Clock, if set, bounds the times of batches.
	Clock Clock
	// Cut, if set, is called after a batch with which the cut of a line has changed.
	Cut func(line int, cut sink.Cut)
}

// Transfer keeps the tables of a sink equal to several resources while Run runs.
type Transfer struct {
	sink    sink.Sink
	options Options
	changed chan struct{} // has an element if resources differ from those of the session
	changes repeats       // belongs to Run

	mu        sync.Mutex
	resources []Resource // never changed in place
	status    Status
	notify    sync.Mutex // locked while a function of options runs
}

// New returns a transfer. It starts nothing.
func New(s sink.Sink, resources []Resource, options Options) *Transfer {
	t := &Transfer{sink: s, resources: resources, options: options, changed: make(chan struct{}, 1),
		changes: repeats{free: freeChanges}}
	t.status = newStatus(resources, Status{})
	return t
}

// reopenWaits bounds the random wait before the sink is opened again.
var reopenWaits = backoff.Exponential{First: 500 * time.Millisecond, Max: 30 * time.Second}

// freeChanges is how many changes of the resources open the sink at once: types join one by one when a program with
// several is installed.
const freeChanges = 5

// Run follows the resources until ctx is done or an error that cannot be retried occurs: an
// error of the sink that is no [sink.Unavailable], or one that ends a reflector. It returns
// the error, also one that occurs when ctx is done already and that of the sink's last Close, or else the cause of
// ctx, never nil. It must not be called concurrently.
func (t *Transfer) Run(ctx context.Context) error {
	rewound := repeats{free: 1}
	stuck := map[stream.Identity]bool{}
	for attempt, first := 0, true; ; attempt++ {
		s := t.newSession(first)
		err := s.run(ctx)
		first = first && !s.opened
		if s.recovered(stuck) {
			attempt = 0
		}
		switch {
		case ctx.Err() != nil:
			return s.end(ctx)
		case errors.Is(err, errChanged):
			continue
		case errors.Is(err, errRewound):
			if err := pause.For(ctx, rewound.next(time.Now())); err != nil {
				return err
			}
			continue
		case !errors.As(err, new(*sink.Unavailable)):
			return err
		}
		wait := backoff.FullJitter(reopenWaits.Wait(attempt), rand.Int64N)
		t.Retrying(err, wait)
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
	}
}

// repeats are ends of sessions that come soon after one another. A balancer in front of two clusters shows now one, now
// the other: each rewind lists everything. A type that comes and goes opens the sink again with each change, which may
// read an index of all objects, and the watches of all types.
type repeats struct {
	free  int // the number of repeats without a wait
	count int
	last  time.Time
}

// repeatsForgotten is after how long another one is the first one again.
const repeatsForgotten = 10 * time.Minute

// next returns the wait of another one.
func (r *repeats) next(now time.Time) time.Duration {
	if now.Sub(r.last) > repeatsForgotten {
		r.count = 0
	}
	r.last = now
	if r.count++; r.count <= r.free {
		return 0
	}
	return backoff.FullJitter(reopenWaits.Wait(r.count-r.free), rand.Int64N)
}

// Change adds resources, each in place of the one with its identity if there is one. A transfer that runs opens the
// sink again with all resources, which continue from what is stored; a line has no cut until each resource on it is
// complete. It is safe for concurrent use.
func (t *Transfer) Change(resources []Resource) {
	t.mu.Lock()
	all := slices.Clone(t.resources)
	for _, r := range resources {
		if i := slices.IndexFunc(all, func(a Resource) bool { return a.ID == r.ID }); i >= 0 {
			all[i] = r
		} else {
			all = append(all, r)
		}
	}
	t.resources, t.status.Changing = all, true
	t.mu.Unlock()
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// forget removes the resources that have left and are in ended. One that is back by now stays.
func (t *Transfer) forget(ended []Resource) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resources = slices.DeleteFunc(slices.Clone(t.resources), func(r Resource) bool {
		return r.Gone > 0 && slices.ContainsFunc(ended, func(e Resource) bool { return e.Gone > 0 && e.ID == r.ID })
	})
}

// Retrying counts an error after which another attempt follows, unless this process is a standby, and reports it to
// Options.Retrying. A sink that repeats requests by itself calls it, too. It is safe for concurrent use.
func (t *Transfer) Retrying(err error, wait time.Duration) {
	unavailable := (*sink.Unavailable)(nil)
	standby := errors.As(err, &unavailable) && unavailable.Standby
	t.mu.Lock()
	if t.status.Standby = standby; !standby {
		t.status.Retries++
	}
	t.mu.Unlock()
	if t.options.Retrying != nil {
		t.notify.Lock()
		defer t.notify.Unlock()
		t.options.Retrying(err, wait)
	}
}

// Refused counts a dead letter, an event that the sink's server refuses permanently, and reports it to Options.Refused.
// Sinks that have dead letters call it. It is safe for concurrent use.
func (t *Transfer) Refused(err error) {
	t.mu.Lock()
	t.status.DeadLetters++
	t.mu.Unlock()
	if t.options.Refused != nil {
		t.notify.Lock()
		defer t.notify.Unlock()
		t.options.Refused(err)
	}
}

// Expired counts the states that a sink has deleted by its options, and reports them to Options.Expired. Sinks that
// delete states call it. It is safe for concurrent use.
func (t *Transfer) Expired(e sink.Expiry) {
	t.mu.Lock()
	t.status.Expired[e.Reason] += uint64(e.States)
	if e.Reason == sink.ExpiredBySize {
		t.status.Excess = e.Excess
	}
	t.mu.Unlock()
	if t.options.Expired != nil {
		t.notify.Lock()
		defer t.notify.Unlock()
		t.options.Expired(e)
	}
}

func (t *Transfer) opened(resources []Resource) {
	if t.options.Opened != nil {
		t.notify.Lock()
		defer t.notify.Unlock()
		t.options.Opened(resources)
	}
}

func (t *Transfer) observe(resource int, n reflector.Notice) {
	if t.options.Observe != nil {
		t.notify.Lock()
		defer t.notify.Unlock()
		t.options.Observe(resource, n)
	}
}
