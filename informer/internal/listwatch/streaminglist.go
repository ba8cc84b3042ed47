package listwatch

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/kube"
)

// A streaming list is emitted in slices of up to this many objects, and so many
// changes are held back until its end.
const (
	maxSlice = 500
	maxHeld  = 10_000
)

// StreamList reads the state through a watch (KEP-3157), as source/kube does:
// what is emitted is the state just before the first deletion, and everything
// from there to the end is the first batch of the watch.
func (s *Source) StreamList(ctx context.Context, notOlderThan keepwatch.Revision, emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	if !s.streaming || s.ledger != nil {
		return 0, nil, s.unsupported("not by this client")
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
		return 0, nil, s.refused(failure)
	}
	list := streamingList{source: s, stream: opened, emit: emit}
	if err := list.read(notOlderThan); err != nil {
		opened.Close()
		return 0, nil, err
	}
	s.proven = s.proven || list.shown > 0
	opened.to, opened.held = list.at, list.held
	opened.shown = list.at
	for _, o := range list.held {
		opened.shown = max(opened.shown, o.revision)
	}
	return list.at, opened, nil
}

// refused is what a failure before the end of a streaming list means. An error
// that is no server's comes from a fake that does not know what it is asked.
func (s *Source) refused(failure *keepwatch.Failure) *keepwatch.Failure {
	switch failure.Kind {
	case keepwatch.Rejected, keepwatch.Ended, keepwatch.Idle, keepwatch.ProtocolViolation:
		failure.Kind = keepwatch.StreamingListUnsupported
	case keepwatch.Unreachable:
		if !kube.Answered(failure) {
			failure.Kind = keepwatch.StreamingListUnsupported
		}
	}
	return failure
}

func (s *Source) unsupported(format string, args ...any) *keepwatch.Failure {
	return keepwatch.Failed(keepwatch.StreamingListUnsupported, "list "+s.name+": "+format, args...)
}

// streamingList is a state on its way.
type streamingList struct {
	source *Source
	stream *stream
	emit   func([]keepwatch.Object) error

	at    keepwatch.Revision // the greatest shown, and at the end the state's
	shown int
	slice []keepwatch.Object // not emitted yet
	held  []occurrence       // from the first deletion on
}

// read reads up to the end of the state.
func (l *streamingList) read(notOlderThan keepwatch.Revision) error {
	for {
		o, failure := l.next()
		if failure != nil {
			return l.source.refused(failure)
		}
		if o.ends {
			return l.end(o.revision, notOlderThan)
		}
		if o.bookmark {
			return l.source.unsupported("the bookmark %d does not end the state", o.revision)
		}
		if err := l.take(o); err != nil {
			return err
		}
	}
}

// next waits for the next event. A list that became one of a server that does not
// number has to be read again in pages.
func (l *streamingList) next() (occurrence, *keepwatch.Failure) {
	for {
		event, _, failure := l.stream.receive(l.source.endTimeout)
		if failure != nil {
			return occurrence{}, failure
		}
		o, news, failure := l.source.understand(event, 0)
		switch {
		case failure != nil:
			return occurrence{}, failure
		case l.source.ledger != nil:
			return occurrence{}, l.source.unsupported("the server does not number")
		case news:
			return o, nil
		}
	}
}

// take emits the object of a change, or holds the change back.
func (l *streamingList) take(o occurrence) error {
	l.shown++
	if len(l.held) == 0 && o.change.Type == keepwatch.Deleted {
		if o.revision <= max(l.at, 1) {
			return keepwatch.Failed(keepwatch.ProtocolViolation,
				"list %s: %v was deleted at revision %v, behind %v", l.source.name, o.change.Object.Key(), o.revision, l.at)
		}
		l.at = o.revision - 1
	}
	if len(l.held) > 0 || o.change.Type == keepwatch.Deleted {
		if len(l.held) == maxHeld {
			return l.source.unsupported("%d changes and no end of the state", len(l.held))
		}
		l.held = append(l.held, o)
		return nil
	}
	l.at = max(l.at, o.revision)
	l.slice = append(l.slice, o.change.Object)
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
			"list %s: the server showed revision %v when asked for %v or later", l.source.name, revision, notOlderThan)
	}
	if len(l.held) == 0 {
		l.at = revision
	} else {
		l.held = append(l.held, occurrence{bookmark: true, revision: revision})
	}
	return l.flush()
}
