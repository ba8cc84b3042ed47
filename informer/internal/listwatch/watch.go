package listwatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/kube"
)

// maxBatch bounds the events of a batch.
const maxBatch = 1000

// Watch opens the history after from.
func (s *Source) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	options := watchOptions()
	switch {
	case s.ledger == nil:
		options.ResourceVersion = from.String()
	case s.ledger.stale:
		return nil, keepwatch.Failed(keepwatch.Expired,
			"watch %s: events came without a resource version, so that there is none to go on from", s.name)
	default:
		options.ResourceVersion = s.ledger.token
	}
	w, failure := s.open(ctx, options)
	if failure != nil {
		return nil, failure
	}
	w.to, w.shown = from, from
	return w, nil
}

// watchOptions ask for bookmarks, and for an end after 5 to 10 minutes, as
// client-go does.
func watchOptions() metav1.ListOptions {
	timeout := int64(300 + rand.IntN(301))
	return metav1.ListOptions{AllowWatchBookmarks: true, TimeoutSeconds: &timeout}
}

// stream is an open watch.
type stream struct {
	source *Source
	watch  watch.Interface
	cancel context.CancelCauseFunc
	done   <-chan struct{} // of its context
	stop   sync.Once

	to     keepwatch.Revision // of the last batch
	shown  keepwatch.Revision // the greatest that was read
	held   []occurrence       // read already
	failed *keepwatch.Failure // comes behind held
}

// occurrence is one event, as the source understands it.
type occurrence struct {
	change   keepwatch.Change // of no meaning for a bookmark
	revision keepwatch.Revision
	bookmark bool
	ends     bool // a bookmark that ends the initial state
}

// Next takes what is at hand, at most 1,000 events, and waits while that is
// nothing. Events below what was shown already, and whatever follows a bookmark,
// begin a new batch, as those of source/kube do.
func (w *stream) Next() (keepwatch.Batch, error) {
	batch := keepwatch.Batch{From: w.to, To: w.to}
	for w.failed == nil && len(w.held) == 0 {
		w.read(w.patience())
	}
	if len(w.held) == 0 {
		return keepwatch.Batch{}, w.failed
	}
	for n := 0; n < maxBatch; n++ {
		for len(w.held) == 0 && w.failed == nil && w.read(0) {
		}
		if len(w.held) == 0 {
			break
		}
		next := w.held[0]
		if next.revision < batch.To && len(batch.Changes) > 0 {
			break
		}
		w.held = w.held[1:]
		batch.To = max(batch.To, next.revision)
		if next.bookmark {
			break
		}
		batch.Changes = append(batch.Changes, next.change)
	}
	w.to = batch.To
	return batch, nil
}

// patience is how long the other side may be silent; nobody can tell of one that
// does not number, since it knows no bookmarks.
func (w *stream) patience() time.Duration {
	if w.source.ledger != nil {
		return -1
	}
	return w.source.patience
}

// read waits for one event: for as long as it takes if patience is negative, not
// at all if it is zero. It reports whether there was one.
func (w *stream) read(patience time.Duration) bool {
	event, ok, failure := w.receive(patience)
	if failure != nil {
		w.fail(failure)
	}
	if !ok {
		return false
	}
	o, news, failure := w.source.understand(event, w.shown)
	switch {
	case failure != nil:
		w.fail(failure)
	case news:
		w.shown = max(w.shown, o.revision)
		w.held = append(w.held, o)
	}
	return true
}

func (w *stream) fail(failure *keepwatch.Failure) {
	w.failed = failure
	w.Close()
}

func (w *stream) receive(patience time.Duration) (event watch.Event, ok bool, failure *keepwatch.Failure) {
	op := "watch " + w.source.name
	if patience == 0 {
		select {
		case event, ok = <-w.watch.ResultChan():
			if !ok {
				failure = keepwatch.Failed(keepwatch.Ended, "%s: the stream ended", op)
			}
		default:
		}
		return event, ok, failure
	}
	var silence <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		silence = timer.C
	}
	select {
	case event, ok = <-w.watch.ResultChan():
		if !ok {
			failure = keepwatch.Failed(keepwatch.Ended, "%s: the stream ended", op)
		}
	case <-silence:
		failure = keepwatch.Failed(keepwatch.Idle, "%s: nothing came for %v, not even a bookmark", op, patience)
	case <-w.done:
		failure = keepwatch.Failed(keepwatch.Ended, "%s: closed", op)
	}
	return event, ok, failure
}

// Close ends the watch. It takes what is still on its way, or a filter before the
// client's watch would wait for ever for somebody to do so.
func (w *stream) Close() {
	w.cancel(nil)
	w.stop.Do(func() {
		w.watch.Stop()
		timer := time.NewTimer(retreat)
		defer timer.Stop()
		for {
			select {
			case _, open := <-w.watch.ResultChan():
				if !open {
					return
				}
			case <-timer.C:
				return
			}
		}
	})
}

// understand makes an occurrence of an event that came after shown; news is false
// for one that says nothing.
func (s *Source) understand(event watch.Event, shown keepwatch.Revision) (o occurrence, news bool, failure *keepwatch.Failure) {
	if event.Type == watch.Error {
		return o, false, s.told(event.Object)
	}
	switch event.Type {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
	default:
		return o, false, s.violation(fmt.Errorf("unknown event type %q", event.Type))
	}
	about, err := meta.Accessor(event.Object)
	if err != nil {
		return o, false, s.violation(err)
	}
	if event.Type == watch.Bookmark {
		return s.bookmark(about, shown)
	}
	if s.ledger == nil {
		made, err := strict(event.Object)
		if err == nil {
			s.proven = true
			o.revision = made.Revision()
			o.change = keepwatch.Change{Type: changeTypes[event.Type], Revision: o.revision, Object: made}
			s.given = max(s.given, o.revision)
			return o, true, nil
		}
		if s.proven {
			return o, false, s.violation(err)
		}
		s.keepLedger()
	}
	change, news := s.ledger.event(event.Type, event.Object)
	s.publish()
	if news {
		s.given = s.ledger.last
		o.change, o.revision = change, change.Revision
	}
	return o, news, nil
}

var changeTypes = map[watch.EventType]keepwatch.ChangeType{
	watch.Added: keepwatch.Added, watch.Modified: keepwatch.Modified, watch.Deleted: keepwatch.Deleted,
}

// bookmark takes a bookmark. One of a server that does not number says no more
// than from where to go on.
func (s *Source) bookmark(about metav1.Object, shown keepwatch.Revision) (o occurrence, news bool, failure *keepwatch.Failure) {
	o = occurrence{bookmark: true, ends: about.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"}
	if s.ledger != nil {
		s.ledger.move(about.GetResourceVersion())
		s.publish()
		o.revision = shown
		return o, true, nil
	}
	revision, err := keepwatch.ParseRevision(about.GetResourceVersion())
	if err == nil && revision < shown {
		err = fmt.Errorf("the bookmark %d is behind %d, which was shown already", revision, shown)
	}
	if err != nil {
		return o, false, s.violation(err)
	}
	o.revision = revision
	s.given = max(s.given, revision)
	return o, true, nil
}

// told is the failure that an ERROR event tells of.
func (s *Source) told(object runtime.Object) *keepwatch.Failure {
	if object == nil {
		return keepwatch.Failed(keepwatch.UnknownStatus, "watch %s: %w", s.name, errors.New("an error without a status"))
	}
	return kube.FailureOf("watch "+s.name, apierrors.FromObject(object))
}

func (s *Source) violation(err error) *keepwatch.Failure {
	return keepwatch.Failed(keepwatch.ProtocolViolation, "watch %s: %w", s.name, err)
}
