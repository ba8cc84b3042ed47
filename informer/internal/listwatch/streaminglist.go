package listwatch

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/kube"
)

// Bounds of a streaming list: the objects of a slice that is emitted, and the changes that are
// deferred until its end.
const (
	maxSlice    = 500
	maxDeferred = 10_000
)

// StreamList reads the state through a watch (KEP-3157). It emits the state just before the
// first deletion, as source/kube does. The deletion and all later changes up to the end of the
// list are the first batch of the watch.
func (s *Source) StreamList(ctx context.Context, notOlderThan keepwatch.Revision,
	emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	if !s.streaming || s.versions != nil {
		return 0, nil, s.unsupported("the client does not support it")
	}
	options := watchOptions()
	yes := true
	options.SendInitialEvents = &yes
	options.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	if notOlderThan > 0 {
		options.ResourceVersion = notOlderThan.String()
	}
	opened, failure := s.open(ctx, options)
	if failure != nil {
		return 0, nil, s.fallback(failure)
	}
	list := streamingList{source: s, stream: opened, emit: emit}
	if err := list.read(notOlderThan); err != nil {
		opened.Close()
		return 0, nil, err
	}
	s.versioned = s.versioned || list.events > 0
	opened.to, opened.buffer = list.revision, list.deferred
	opened.newest = list.revision
	s.cut = 0
	for _, e := range list.deferred {
		opened.newest = max(opened.newest, e.revision)
	}
	return list.revision, opened, nil
}

// fallback returns the failure of a streaming list that has not ended. It changes the kind to
// StreamingListUnsupported where a paged list may succeed. An error that no server has sent is
// from a fake that does not support streaming lists.
func (s *Source) fallback(failure *keepwatch.Failure) *keepwatch.Failure {
	switch failure.Kind {
	case keepwatch.Rejected, keepwatch.Ended, keepwatch.Idle, keepwatch.ProtocolViolation:
		failure.Kind = keepwatch.StreamingListUnsupported
	case keepwatch.Unreachable:
		if !kube.IsRequestError(failure) {
			failure.Kind = keepwatch.StreamingListUnsupported
		}
	}
	return failure
}

func (s *Source) unsupported(format string, args ...any) *keepwatch.Failure {
	return keepwatch.Failed(keepwatch.StreamingListUnsupported, "list "+s.name+": "+format, args...)
}

// streamingList is a streaming list that is being read.
type streamingList struct {
	source *Source
	stream *stream
	emit   func([]keepwatch.Object) error

	revision keepwatch.Revision // the greatest of the emitted objects; at the end the state's
	events   int
	slice    []keepwatch.Object // not emitted yet
	deferred []parsedEvent      // from the first deletion on
}

// read reads up to the end of the state.
func (l *streamingList) read(notOlderThan keepwatch.Revision) error {
	for {
		e, failure := l.next()
		if failure != nil {
			failure.Accepted = true
			return l.source.fallback(failure)
		}
		if e.endsList {
			return l.end(e.revision, notOlderThan)
		}
		if e.bookmark {
			return l.source.unsupported("the bookmark %d does not end the state", e.revision)
		}
		if err := l.add(e); err != nil {
			return err
		}
	}
}

// next waits for the next event. It fails if the event shows that the server has no revisions:
// the state must be read again in pages.
func (l *streamingList) next() (parsedEvent, *keepwatch.Failure) {
	for {
		event, _, failure := l.stream.receive(l.source.endTimeout)
		if failure != nil {
			return parsedEvent{}, failure
		}
		e, ok, failure := l.source.parse(event, 0)
		switch {
		case failure != nil:
			return parsedEvent{}, failure
		case l.source.versions != nil:
			return parsedEvent{}, l.source.unsupported("the server has no revisions")
		case ok:
			return e, nil
		}
	}
}

// add emits the object of a change, or defers the change.
func (l *streamingList) add(e parsedEvent) error {
	l.events++
	if len(l.deferred) == 0 && e.change.Type == keepwatch.Deleted {
		if e.revision <= max(l.revision, 1) {
			return keepwatch.Failed(keepwatch.ProtocolViolation,
				"list %s: %v was deleted at revision %v, below %v", l.source.name, e.change.Object.Key(), e.revision, l.revision)
		}
		l.revision = e.revision - 1
	}
	if len(l.deferred) > 0 || e.change.Type == keepwatch.Deleted {
		if len(l.deferred) == maxDeferred {
			return l.source.unsupported("%d changes without an end of the state", len(l.deferred))
		}
		l.deferred = append(l.deferred, e)
		return nil
	}
	l.revision = max(l.revision, e.revision)
	l.slice = append(l.slice, e.change.Object)
	if len(l.slice) < maxSlice {
		return nil
	}
	return l.flush()
}

func (l *streamingList) flush() error {
	slice := l.slice
	l.slice = nil
	if len(slice) == 0 {
		return nil
	}
	return l.emit(slice)
}

// end completes the state at the revision of its last bookmark.
func (l *streamingList) end(revision, notOlderThan keepwatch.Revision) error {
	if revision < notOlderThan {
		return keepwatch.Failed(keepwatch.StaleReplica,
			"list %s: the server returned revision %v instead of %v or later", l.source.name, revision, notOlderThan)
	}
	if len(l.deferred) == 0 {
		l.revision = revision
	} else {
		l.deferred = append(l.deferred, parsedEvent{bookmark: true, revision: revision})
	}
	return l.flush()
}
