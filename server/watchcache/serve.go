package watchcache

import (
	"context"
	"errors"
	"time"
)

const (
	// bookmarkInterval is how often a watch sends a bookmark, and bookmarkBefore how long before
	// its deadline, so that the client resumes from there. Both are kube-apiserver's.
	bookmarkInterval = time.Minute
	bookmarkBefore   = 2 * time.Second
)

// Receiver receives the events of a watch: a stream over HTTP, or a channel. An error of its
// methods ends [Watch.Serve], which returns it.
type Receiver interface {
	// Send receives an event, and a bookmark only if the client asked for bookmarks. initial says
	// that the event belongs to the initial state, or to a change of its view, which no other watch receives.
	Send(e Event, initial bool) error
	// Initialized is called once, after everything that there was when the watch began.
	Initialized() error
	// Flush is called when there are no more events at the moment.
	Flush() error
}

// Serve sends events to a receiver until ctx is done, stop is closed, or the cache ends: then it
// returns nil, at the end of the cache when everything is sent that it has: the deletions of the last
// objects of a definition that was deleted, whose watches have no successor. It returns the error that
// ends the watch otherwise, or the one with which [Cache.Run] says that watches end. A
// nil stop never closes. A client that is always behind receives bookmarks, too.
func (w *Watch) Serve(ctx context.Context, stop <-chan struct{}, to Receiver) error {
	if w.predicate.shard != nil {
		w.cache.meter.shardedWatchBegins()
		defer w.cache.meter.shardedWatchEnds()
	}
	bookmark := time.NewTimer(untilBookmark(ctx))
	defer bookmark.Stop()
	if w.initialized() {
		if err := to.Initialized(); err != nil {
			return err
		}
	}
	ended := false // the cache, which has nothing new since
	due := false   // a bookmark is to be sent, once the watch has passed the changes that it was not woken for
	for ctx.Err() == nil {
		initial := !w.stated
		newer, err := w.step(ctx, stop, to)
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			return nil
		}
		if isClosed(stop) { // the step may have sent a part: no bookmark may follow
			return nil
		}
		if err != nil {
			return err
		}
		if newer == nil {
			if initial || !due && !fired(bookmark) {
				continue
			}
		} else if !due {
			if err := to.Flush(); err != nil {
				return err
			}
			if ended {
				return w.cache.endOfWatches()
			}
			select {
			case <-newer:
				continue
			case <-w.viewChanges():
				continue
			case <-bookmark.C:
				due = true
				continue
			case <-ctx.Done():
				continue
			case <-stop:
				return nil
			case <-w.cache.Ended():
				ended = true
				continue
			}
		}
		bookmark.Reset(untilBookmark(ctx))
		if due = w.wantsBookmarks() && !w.viewed.isDelivered(); due {
			continue // each turn delivers more of what the view has been granted
		}
		if err := w.sendProgress(to); err != nil {
			return err
		}
	}
	// The watch's last seconds may have passed while events were written.
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && w.stated && (due || fired(bookmark)) {
		return w.sendProgress(to)
	}
	return nil
}

// sendProgress sends a bookmark, if the client asked for bookmarks, and has received all objects of its view.
func (w *Watch) sendProgress(to Receiver) error {
	if !w.wantsBookmarks() || !w.viewed.isDelivered() {
		return nil
	}
	return to.Send(w.progress(), false)
}

// step sends the events that TryNext returns. It returns the channel that is closed when there are
// more, if there are none at the moment. Once ctx is canceled, which may be because the client has lost its permission,
// or stop is closed, it sends nothing.
func (w *Watch) step(ctx context.Context, stop <-chan struct{}, to Receiver) (newer <-chan struct{}, err error) {
	initialized := w.initialized()
	events, newer, failure := w.TryNext()
	for i, e := range events {
		// A client resumes behind the whole of a revision.
		between := i == 0 || e.Revision != events[i-1].Revision
		if err := ctx.Err(); errors.Is(err, context.Canceled) || between && isClosed(stop) {
			return nil, err
		}
		if err := to.Send(e, w.unshared); err != nil {
			return nil, err
		}
	}
	if failure != nil {
		return nil, failure
	}
	if !initialized && w.initialized() {
		return newer, to.Initialized()
	}
	return newer, nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// fired reports whether a timer has fired.
func fired(t *time.Timer) bool {
	select {
	case <-t.C:
		return true
	default:
		return false
	}
}

// untilBookmark returns the time until the next bookmark: a minute, but early enough before the
// deadline of ctx.
func untilBookmark(ctx context.Context) time.Duration {
	wait := bookmarkInterval
	if deadline, ok := ctx.Deadline(); ok {
		if last := time.Until(deadline) - bookmarkBefore; last > 0 {
			wait = min(wait, last)
		}
	}
	return wait
}
