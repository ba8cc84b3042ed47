package kube

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
)

// Bounds of a slice that a streaming list emits (one object is always allowed), and of the
// events that it buffers until its end.
const (
	maxSliceObjects  = 500
	maxSliceBytes    = 4 << 20
	maxPendingEvents = 10_000
	maxPendingBytes  = 16 << 20
)

// StreamList reads the state through a watch (KEP-3157), and returns a watch that continues
// on the same connection.
//
// Changes may follow the objects of the state before the bookmark that ends it. StreamList
// emits a changed object again. It can't emit a deletion: the state that it returns is the
// one before the first deletion, and the events from there to the bookmark are the first
// batch of the watch.
//
// It reads the next slice while emit handles one. Before it returns, emit has returned.
//
// StreamList fails with Unversioned as List does, if the first object has no revision, and with
// StreamingListUnsupported in these cases:
//
//   - the server refuses the request
//   - the stream ends before the state does
//   - a bookmark does not end the state
//   - the server sends nothing for 10 s after it accepted the request
//   - the waits after the first change, which follows the state, sum up to 10 s
//   - the buffered events exceed 10,000 or 16 MiB
func (s *Source) StreamList(ctx context.Context, notOlderThan keepwatch.Revision,
	emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	s.readDefinition(ctx)
	s.definition.listed()
	x, failure := s.get(ctx, "list", s.accept(watchAccept), s.streamQuery(notOlderThan))
	if failure != nil {
		return 0, nil, unsupportedIfRefused(failure)
	}
	x.idle.setLimit(s.listEndTimeout)
	list := streamingList{frames: s.frames(x, 0), emit: emit}
	err := list.read(notOlderThan)
	if failed := list.wait(); failed != nil {
		err = failed
	}
	if err != nil {
		x.body.close()
		if failure, ok := errors.AsType[*keepwatch.Failure](err); ok && !list.emitFailed {
			if list.frames.newest == 0 {
				failure = s.unversionedOr(failure)
			}
			failure.Accepted = true
			err = failure
		}
		return 0, nil, err
	}
	x.idle.setLimit(s.idleTimeout)
	x.op = "watch " + s.name
	s.cut.Store(0)
	return list.pending.From, s.follow(list.frames, list.pending), nil
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

// unsupportedIfRefused converts a refusal before the end of a streaming list to
// StreamingListUnsupported.
func unsupportedIfRefused(failure *keepwatch.Failure) *keepwatch.Failure {
	switch failure.Kind {
	case keepwatch.Rejected, keepwatch.Ended:
		failure.Kind = keepwatch.StreamingListUnsupported
	}
	return failure
}

// streamingList is a state that is being received.
type streamingList struct {
	frames *frames
	emit   func([]keepwatch.Object) error

	slice      []keepwatch.Object // not emitted yet
	bytes      int                // of slice, or of pending once it has changes
	emitting   chan emitted       // receives the outcome of emit, nil if it does not run
	emitFailed bool               // emit has failed

	pending keepwatch.Batch // from the first deletion on; at the end From is the state's revision
}

// read reads to the end of the state.
func (l *streamingList) read(notOlderThan keepwatch.Revision) error {
	for {
		before := l.frames.newest
		e, failure := l.frames.next()
		switch {
		case failure != nil:
			return l.failed(failure)
		case e.endsList:
			return l.end(e.revision, notOlderThan)
		case e.bookmark():
			return l.unsupported("a bookmark at revision %v does not end the state", e.revision)
		}
		if err := l.add(e.change, e.size, before); err != nil {
			return err
		}
	}
}

// add emits the object of a change, or adds the change to pending. size is the object's in
// bytes, before the greatest revision that precedes it.
func (l *streamingList) add(change keepwatch.Change, size int, before keepwatch.Revision) error {
	if change.Type != keepwatch.Added {
		l.frames.idle.cumulative = true // endless changes must not prevent the timeout
	}
	if change.Type == keepwatch.Deleted && l.pending.From == 0 {
		if change.Revision <= max(before, 1) { // there is no revision to return below 1
			return keepwatch.Failed(keepwatch.ProtocolViolation,
				"%s: %v was deleted at revision %v, after revision %v", l.frames.op, change.Object.Key(), change.Revision, before)
		}
		if err := l.flush(); err != nil {
			return err
		}
		l.pending.From = change.Revision - 1
	}
	if l.pending.From > 0 {
		return l.addPending(change, size)
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

func (l *streamingList) addPending(change keepwatch.Change, size int) error {
	if len(l.pending.Changes) == maxPendingEvents || l.bytes+size > maxPendingBytes {
		return l.unsupported("%d changes without the end of the state", len(l.pending.Changes))
	}
	l.pending.Changes = append(l.pending.Changes, change)
	l.bytes += size
	return nil
}

// flush emits the slice when emit has returned from the one before.
func (l *streamingList) flush() error {
	slice := l.slice
	l.slice, l.bytes = nil, 0
	if len(slice) == 0 {
		return nil
	}
	if err := l.wait(); err != nil {
		return err
	}
	l.emitting = make(chan emitted, 1)
	go func() {
		var e emitted
		defer func() {
			e.panicked = recover()
			l.emitting <- e
		}()
		e.err = l.emit(slice)
	}()
	return nil
}

// emitted is the outcome of emit.
type emitted struct {
	err      error
	panicked any
}

// wait waits for the end of emit, and returns its error. Its panic is one of StreamList's goroutine, whose caller may
// recover.
func (l *streamingList) wait() error {
	if l.emitting == nil {
		return nil
	}
	e := <-l.emitting
	l.emitting, l.emitFailed = nil, e.err != nil
	if e.panicked != nil {
		panic(e.panicked)
	}
	return e.err
}

// end completes the state at the revision of the bookmark that ends it.
func (l *streamingList) end(revision, notOlderThan keepwatch.Revision) error {
	if revision < notOlderThan {
		return keepwatch.Failed(keepwatch.StaleReplica,
			"%s: the server showed revision %v, requested was %v or later", l.frames.op, revision, notOlderThan)
	}
	if l.pending.From == 0 {
		l.pending.From = revision
	}
	l.pending.To = revision
	return l.flush()
}

func (l *streamingList) failed(failure *keepwatch.Failure) error {
	if failure.Kind == keepwatch.Idle {
		return l.unsupported("the state did not end within %v", l.frames.idle.limit)
	}
	return unsupportedIfRefused(failure)
}

func (l *streamingList) unsupported(format string, args ...any) error {
	failure := keepwatch.Failed(keepwatch.StreamingListUnsupported, format, args...)
	failure.Err = fmt.Errorf("%s: %w", l.frames.op, failure.Err)
	return failure
}
