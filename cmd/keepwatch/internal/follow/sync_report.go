package follow

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
	"github.com/keepwatch/keepwatch/stream/transfer/apitypes"
)

// syncReport prints what happens to a transfer. Its methods may be called concurrently.
type syncReport struct {
	out   io.Writer
	data  io.Writer      // where the output is written
	sink  string         // its name in all messages; empty if it is the only one
	start *statusPrinter // of messages that concern no resource

	mu      sync.Mutex
	named   map[string]*cluster.Target // the targets of the arguments, by their scope
	targets map[stream.Identity]*syncTarget
	current []*syncTarget // the resources of the transfer, by their number
	synced  map[int]bool  // lines whose cut was printed
	// onCut, if set, is called with each cut, and with whether it is the first one since the resources changed, a gap, or
	// an error of the sink. Cuts and gaps are then part of the output, and not printed here.
	onCut func(status transfer.Status, line int, cut sink.Cut, first bool)

	deleted               uint64    // states that were deleted by the size since the last message about it
	nextReached, nextOver time.Time // of the next messages about the size
	thinned               uint64    // states that were thinned out since the last message about it
	nextThinned           time.Time

	clock      serverClock
	nextClocks time.Time // of the next message about this machine's clock
}

// syncTarget is what is printed of a stream.
type syncTarget struct {
	*cluster.Target
	status *statusPrinter
}

// maxCounts bounds how many types are counted one by one.
const maxCounts = 20

// newSyncReport returns the report of a sink, which writes to data. The name is empty if it is the only one.
func newSyncReport(out, data io.Writer, sink string) *syncReport {
	r := &syncReport{
		out: out, data: data, sink: sink, synced: map[int]bool{}, named: map[string]*cluster.Target{},
		targets: map[stream.Identity]*syncTarget{},
	}
	r.start = r.printer()
	return r
}

func (r *syncReport) printer() *statusPrinter {
	p := newStatusPrinter(r.out, r.data)
	p.sink = r.sink
	p.live = p.live && r.sink == "" // several reports would overwrite each other's line
	return p
}

// resolved adds a target of the arguments.
func (r *syncReport) resolved(t *cluster.Target) { r.named[t.Scope()] = t }

// add adds a resource, which the transfer will have.
func (r *syncReport) add(id stream.Identity, of apitypes.Resource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.named[of.Scope()]
	if t == nil {
		t = &cluster.Target{
			Resource: of.Type.Resource, Kind: of.Type.Resource.GroupVersion().WithKind(of.Shown.Kind),
			Namespace: of.Namespace, Namespaced: of.Shown.Namespaced,
		}
	}
	r.put(id, &syncTarget{Target: t})
}

// watchTimeout returns the time of the next watch of a stream.
func (r *syncReport) watchTimeout(id stream.Identity, stale bool) time.Duration {
	return r.target(id).status.watchTimeout(stale)
}

// printf prints a message.
func (r *syncReport) printf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clear()
	r.start.printf(format, args...)
}

// opened begins the report of a session of the transfer.
func (r *syncReport) opened(resources []transfer.Resource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clear()
	var current []*syncTarget
	for _, of := range resources {
		current = append(current, r.targetOf(of.ID))
	}
	if !slices.Equal(current, r.current) {
		clear(r.synced)
	}
	r.current = current
}

// target returns the target of a stream.
func (r *syncReport) target(id stream.Identity) *syncTarget {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.targetOf(id)
}

// targetOf returns the target of a stream, a new one if only an earlier process has followed it.
func (r *syncReport) targetOf(id stream.Identity) *syncTarget {
	if t := r.targets[id]; t != nil {
		return t
	}
	resource := schema.ParseGroupResource(id.Resource)
	t := &syncTarget{Target: &cluster.Target{
		Resource: resource.WithVersion(""), Kind: schema.GroupVersionKind{Group: resource.Group, Kind: resource.Resource},
		Namespace: id.Namespace, Namespaced: id.Namespace != "",
	}}
	r.put(id, t)
	return t
}

func (r *syncReport) put(id stream.Identity, t *syncTarget) {
	t.status = r.printer()
	t.status.resource = t.Name()
	r.targets[id] = t
}

// observe prints the notices of a resource.
func (r *syncReport) observe(i int, n reflector.Notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current[i].status.observe(n)
}

// retrying prints an error of the sink, and the wait before the next attempt.
func (r *syncReport) retrying(err error, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clear()
	clear(r.synced)
	r.start.printf("%v; retrying in %v", err, wait.Round(100*time.Millisecond))
}

// refused prints the reason of a dead letter.
func (r *syncReport) refused(err error) { r.printf("%v", err) }

// sizeEvery is how often deletions by the size are printed, and those by thinning: a file that is full loses states
// with each change.
const sizeEvery = time.Hour

// expired prints which states were deleted by the size, and whether it is too small for the current ones, and which
// were thinned out. Those that were deleted by their age are as old as expected.
func (r *syncReport) expired(e sink.Expiry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	switch e.Reason {
	case sink.ExpiredByAge:
		return
	case sink.ExpiredByThinning:
		if r.thinned += uint64(e.States); !now.Before(r.nextThinned) {
			r.clear()
			r.start.printf("--thin: %s states were deleted, which had ended by %s", grouped(int64(r.thinned)),
				e.Until.UTC().Format(time.RFC3339))
			r.thinned, r.nextThinned = 0, now.Add(sizeEvery)
		}
		return
	}
	r.deleted += uint64(e.States)
	if e.States > 0 && !now.Before(r.nextReached) {
		r.clear()
		r.start.printf("--max-size is reached: %s states were deleted, which had ended by %s", grouped(int64(r.deleted)),
			e.Until.UTC().Format(time.RFC3339))
		r.deleted, r.nextReached = 0, now.Add(sizeEvery)
	}
	if e.Excess > 0 && !now.Before(r.nextOver) {
		r.clear()
		r.start.printf(
			"the current states alone are %s bytes more than --max-size: no history is left, and the database grows",
			grouped(e.Excess))
		r.nextOver = now.Add(sizeEvery)
	}
}

// clocks prints, once in an hour, that the newest transaction is in the future, and that this machine's clock is ahead
// of the API server's. Revisions carry the order, and not times: all changes are stored.
func (r *syncReport) clocks(newest time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.onCut != nil { // the output has no times
		return
	}
	local, now := time.Now(), transfer.Clock(r.clock.now).Now()
	ahead, behind := local.Sub(now) > transfer.MaxApart, newest.Sub(now) > transfer.MaxApart
	if !ahead && !behind || local.Before(r.nextClocks) {
		return
	}
	r.clear()
	shows, api := local.UTC().Format(time.RFC3339), now.Format(time.RFC3339)
	if !behind {
		r.start.printf("the clock shows %s, and that of the API server %s: transactions have the latter", shows, api)
	} else {
		if ahead {
			shows += ", that of the API server " + api
		}
		r.start.printf("the clock shows %s, and the newest transaction is of %s: until then, all transactions have that time",
			shows, newest.UTC().Format(time.RFC3339))
	}
	r.nextClocks = local.Add(time.Hour)
}

// committed reports the gaps of a batch.
func (r *syncReport) committed(batch sink.Batch) {
	r.clocks(batch.Time)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range batch.Pieces {
		t := r.current[p.Stream]
		for _, m := range p.Messages {
			switch m := m.(type) {
			case stream.Gap:
				clear(r.synced)
				if r.onCut == nil {
					t.status.printf("%s: the history from %d to %d is lost (%s), the difference follows", t.Scope(), m.From, m.To,
						m.Reason)
				}
			case stream.Synced:
				t.status.clear()
			}
		}
	}
}

// cut reports the first cut of a line, and the first one after a gap, a change of the resources or an error of the
// sink.
func (r *syncReport) cut(status transfer.Status, line int, cut sink.Cut) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.synced[line]
	r.synced[line] = true
	if r.onCut != nil {
		r.onCut(status, line, cut, first)
		return
	}
	if !first {
		return
	}
	var counts []string
	objects := int64(0)
	for i, s := range status.Resources {
		if s.Line == line {
			objects += int64(s.Objects)
			counts = append(counts, fmt.Sprintf("%s %s", r.current[i].Scope(), grouped(int64(s.Objects))))
		}
	}
	text := strings.Join(counts, ", ")
	if len(counts) > maxCounts {
		text = fmt.Sprintf("%s objects of %d types", grouped(objects), len(counts))
	}
	r.clear()
	r.start.printf("synced at %d: %s", cut.Revision, text)
}

// end removes the progress lines.
func (r *syncReport) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clear()
}

func (r *syncReport) clear() {
	for _, t := range r.current {
		t.status.clear()
	}
}
