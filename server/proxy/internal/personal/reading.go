package personal

import (
	"context"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

var _ watchcache.View = (*Reading)(nil)

// Reading is a list or a watch of a user over all namespaces. It has two views until its end: that of its verb, which
// it shows, and that of the other one. For a list is followed by a watch from its revision, and what a watch is
// continued from may be that of a list. It is safe for concurrent use.
type Reading struct {
	views        *Views
	shown, other *View
	refused      sync.Once

	mu     sync.Mutex
	opened []func()
}

// Read returns a reading, which the caller ends. It fails with ErrBusy if there are too many views. Nothing is decided
// yet.
func (v *Views) Read(s Subject) (*Reading, error) {
	other := s
	other.Verb = map[string]string{"list": "watch", "watch": "list"}[s.Verb]
	held, err := v.hold(s, other)
	if err != nil {
		return nil, err
	}
	return &Reading{views: v, shown: held[0], other: held[1]}, nil
}

// Decide lets the views be decided, as of a time after the call. It reports false if the user may read in no
// namespace. It fails if the server does not decide about each of the namespaces that may be in them, and with
// ErrBusy if they have been forgotten meanwhile.
func (r *Reading) Decide(ctx context.Context) (has bool, err error) {
	if err := r.shown.current(ctx); err != nil {
		return false, r.counted(err)
	}
	if has, _ := r.shown.Count(); has == 0 {
		return false, nil
	}
	return true, r.counted(r.other.current(ctx))
}

// Open lets the views follow what changes: the one that is shown, and that of the other verb while a watch is open,
// since another reading continues it. It fails with ErrBusy if one has been forgotten.
func (r *Reading) Open(newest Newest) error {
	views := []*View{r.shown}
	if r.shown.subject.Verb == "watch" {
		views = append(views, r.other)
	}
	for _, view := range views {
		closed, err := view.Open(newest)
		if err != nil {
			return r.counted(err)
		}
		r.mu.Lock()
		r.opened = append(r.opened, closed)
		r.mu.Unlock()
	}
	return nil
}

// End ends the reading. Views without namespaces that nobody else uses are forgotten: who may read nowhere needs none,
// and would have one for each name of a resource that it makes up.
func (r *Reading) End() {
	r.mu.Lock()
	opened := r.opened
	r.opened = nil
	r.mu.Unlock()
	for _, closed := range opened {
		closed()
	}
	has, _ := r.shown.Count()
	r.views.release(has == 0, r.shown, r.other)
}

// counted counts a reading that is refused, and returns the error.
func (r *Reading) counted(err error) error {
	if err == ErrBusy || err == error(errGivenUp) {
		r.refused.Do(r.views.counts.refused.Inc)
	}
	return err
}

// Count returns how many namespaces are shown, and how many there are.
func (r *Reading) Count() (has, of int) { return r.shown.Count() }

// Namespaces implements watchcache.View.
func (r *Reading) Namespaces() (*watchcache.Namespaces, <-chan struct{}, error) {
	present, replaced, err := r.shown.Namespaces()
	return present, replaced, r.counted(err)
}

// Agreement implements watchcache.View.
func (r *Reading) Agreement() time.Duration { return r.shown.Agreement() }

// Resumable implements watchcache.View for a watch: its client may have the revision of a list, whose user may list in
// other namespaces than it may watch. One that has that of a watch has nothing of some of the objects that are deleted.
func (r *Reading) Resumable(from keepwatch.Revision) (listed *watchcache.Namespaces, ok bool) {
	listed, ok = r.other.Resumable(from)
	_, watched := r.shown.Resumable(from)
	return listed, ok && watched
}

// Settle asks for the first revisions of the sets, if that is due. It returns the first revision from which a watch
// can continue, zero while that is not known.
func (r *Reading) Settle(ctx context.Context, newest Newest) keepwatch.Revision {
	r.shown.Settle(ctx, newest)
	r.other.Settle(ctx, newest)
	return max(r.shown.Floor(), r.other.Floor())
}
