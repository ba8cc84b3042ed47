package kube

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
)

// A streaming list is emitted in slices of up to these, and one object in any
// case. What has to be held back until its end is bounded too.
const (
	maxSliceObjects = 500
	maxSliceBytes   = 4 << 20
	maxHeldEvents   = 10_000
	maxHeldBytes    = 16 << 20
)

// StreamList reads the state through a watch (KEP-3157) and goes on watching on
// the same connection.
//
// While the state is being sent, changes may follow it, and the end comes
// behind them. An object that changed is emitted again. A deletion can't be, so
// the state that is returned is the one just before the first deletion, and
// everything from there to the end is the first batch of the watch.
//
// StreamingListUnsupported is: a refusal of the request, an end of the stream
// before the end of the state, a bookmark that does not end it, silence of 10 s
// once the request was accepted, 10 s of waiting from the first change on, which
// tells that the state itself was sent, and more held back than the bounds allow;
// and whatever breaks off a second streaming list that was accepted: it begins
// anew each time, where pages go on.
func (s *Source) StreamList(ctx context.Context, notOlderThan keepwatch.Revision, emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	x, failure := s.get(ctx, "list", s.accept(watchAccept), s.streamQuery(notOlderThan))
	if failure != nil {
		return 0, nil, refused(failure)
	}
	x.silence.each(s.endTimeout)
	list := streamingList{frames: s.frames(x, 0), emit: emit}
	if err := list.read(notOlderThan); err != nil {
		x.body.close()
		return 0, nil, s.unfinished(ctx, list.unwanted, err)
	}
	s.brokenOff = 0
	x.silence.each(s.idleTimeout)
	x.op = "watch " + s.name
	return list.held.From, follow(list.frames, list.held), nil
}

func (s *Source) streamQuery(notOlderThan keepwatch.Revision) url.Values {
	q := s.watchQuery()
	q.Set("sendInitialEvents", "true")
	q.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	if notOlderThan > 0 {
		q.Set("resourceVersion", notOlderThan.String())
	}
	return q
}

// refused is what a failure before the end of a streaming list means.
func refused(failure *keepwatch.Failure) *keepwatch.Failure {
	switch failure.Kind {
	case keepwatch.Rejected, keepwatch.Ended:
		failure.Kind = keepwatch.StreamingListUnsupported
	}
	return failure
}

// unfinished is what it means that a list ended with err after it was accepted,
// which may be because it is not wanted any more.
func (s *Source) unfinished(ctx context.Context, unwanted bool, err error) error {
	var failure *keepwatch.Failure
	if unwanted || ctx.Err() != nil || !errors.As(err, &failure) {
		return err
	}
	if s.brokenOff++; s.brokenOff > 1 && failure.Kind != keepwatch.StreamingListUnsupported {
		failure.Kind = keepwatch.StreamingListUnsupported
		failure.Err = fmt.Errorf("%w; the second streaming list in a row to break off", failure.Err)
	}
	return failure
}

// streamingList is a state on its way.
type streamingList struct {
	frames *frames
	emit   func([]keepwatch.Object) error

	slice    []keepwatch.Object // not emitted yet
	bytes    int                // of slice, or of held once that has begun
	unwanted bool               // emit has failed

	held keepwatch.Batch // from the first deletion on; at the end From is the state's revision
}

// read reads up to the end of the state.
func (l *streamingList) read(notOlderThan keepwatch.Revision) error {
	for {
		before := l.frames.seen
		e, failure := l.frames.next()
		switch {
		case failure != nil:
			return l.failed(failure)
		case e.ends:
			return l.end(e.revision, notOlderThan)
		case e.bookmark():
			return l.unsupported("a bookmark at revision %v does not end the state", e.revision)
		}
		if err := l.take(e.change, e.size, before); err != nil {
			return err
		}
	}
}

// take emits the object of a change, of so many bytes, or holds the change back.
// before is the greatest revision up to it.
func (l *streamingList) take(change keepwatch.Change, size int, before keepwatch.Revision) error {
	if change.Type != keepwatch.Added {
		l.frames.silence.sums = true // changes may go on for ever, and look like life
	}
	if change.Type == keepwatch.Deleted && l.held.From == 0 {
		if change.Revision <= max(before, 1) { // there is no revision to return below 1
			return keepwatch.Failed(keepwatch.ProtocolViolation,
				"%s: %v was deleted at revision %v, behind %v", l.frames.op, change.Object.Key(), change.Revision, before)
		}
		if err := l.flush(); err != nil {
			return err
		}
		l.held.From = change.Revision - 1
	}
	if l.held.From > 0 {
		return l.hold(change, size)
	}
	if len(l.slice) > 0 && l.bytes+size > maxSliceBytes {
		if err := l.flush(); err != nil {
			return err
		}
	}
	l.slice = append(l.slice, change.Object)
	l.bytes += size
	if len(l.slice) == maxSliceObjects {
		return l.flush()
	}
	return nil
}

func (l *streamingList) hold(change keepwatch.Change, size int) error {
	if len(l.held.Changes) == maxHeldEvents || l.bytes+size > maxHeldBytes {
		return l.unsupported("%d changes and no end of the state", len(l.held.Changes))
	}
	l.held.Changes = append(l.held.Changes, change)
	l.bytes += size
	return nil
}

func (l *streamingList) flush() error {
	slice := l.slice
	l.slice, l.bytes = nil, 0
	if len(slice) == 0 {
		return nil
	}
	err := l.emit(slice)
	l.unwanted = err != nil
	return err
}

// end completes the state at the revision of its last bookmark.
func (l *streamingList) end(revision, notOlderThan keepwatch.Revision) error {
	if revision < notOlderThan {
		return keepwatch.Failed(keepwatch.StaleReplica,
			"%s: the server showed revision %v when asked for %v or later", l.frames.op, revision, notOlderThan)
	}
	if l.held.From == 0 {
		l.held.From = revision
	}
	l.held.To = revision
	return l.flush()
}

func (l *streamingList) failed(failure *keepwatch.Failure) error {
	if failure.Kind == keepwatch.Idle {
		return l.unsupported("no end of the state within %v of silence", l.frames.silence.limit)
	}
	return refused(failure)
}

func (l *streamingList) unsupported(format string, args ...any) error {
	failure := keepwatch.Failed(keepwatch.StreamingListUnsupported, format, args...)
	failure.Err = fmt.Errorf("%s: %w", l.frames.op, failure.Err)
	return failure
}
