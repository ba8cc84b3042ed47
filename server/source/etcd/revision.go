package etcd

import (
	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/readahead"
)

// revision collects the changes of one revision while it is being received. etcd sends a
// transaction in one response, and may send a response in fragments, each a message.
type revision struct {
	number  keepwatch.Revision
	changes []keepwatch.Change
	bytes   int // of the values
}

// clear empties r for the next revision, and reuses the space unless it is large.
func (r *revision) clear() {
	if cap(r.changes) > maxBatchChanges {
		r.changes = nil
	}
	clear(r.changes)
	r.changes, r.bytes = r.changes[:0], 0
}

// addResponse puts the revisions that a message completes: all except the last one, and
// the last one too if no fragment follows.
func (w *watch) addResponse(response *pb.WatchResponse) *keepwatch.Failure {
	r := &w.revision
	for _, event := range response.Events {
		n := keepwatch.Revision(event.GetKv().GetModRevision())
		if n == w.from {
			continue
		}
		if n != r.number {
			if failure := w.flush(); failure != nil {
				return failure
			}
			r.number = n
		}
		if failure := w.source.add(r, event); failure != nil {
			return failure
		}
	}
	switch {
	case response.Fragment:
		return nil
	case len(response.Events) == 0:
		reached := keepwatch.Revision(response.GetHeader().GetRevision())
		return w.put(readahead.Part{After: reached, To: reached})
	}
	return w.flush()
}

// flush puts the received revision, if there is one.
func (w *watch) flush() *keepwatch.Failure {
	r := &w.revision
	if len(r.changes) == 0 {
		return nil
	}
	failure := w.put(readahead.Part{Changes: r.changes, Bytes: r.bytes, After: r.number - 1, To: r.number})
	r.clear()
	return failure
}

// add adds an event to its revision, unless its key is not accepted.
func (s *Source) add(r *revision, event *mvccpb.Event) *keepwatch.Failure {
	kv := event.GetKv()
	change := keepwatch.Change{Revision: keepwatch.Revision(kv.GetModRevision())}
	switch {
	case !s.prefix.covers(kv.GetKey()) || kv.GetModRevision() <= 0:
		return s.protocolViolation("an event has a key or revision that was not requested")
	case !s.accept(s.prefix.key(kv.Key)):
		return nil
	case event.Type == mvccpb.Event_DELETE:
		change.Type = keepwatch.Deleted
		change.Object = &Object{key: s.prefix.key(kv.Key), revision: change.Revision}
	case event.Type != mvccpb.Event_PUT:
		return s.protocolViolation("an event has an unknown type")
	default:
		o, failure := s.decode(kv)
		if failure != nil {
			return failure
		}
		change.Type, change.Object = keepwatch.Modified, o
		if kv.CreateRevision == kv.ModRevision {
			change.Type = keepwatch.Added
		}
	}
	r.changes = append(r.changes, change)
	r.bytes += len(kv.Value)
	return nil
}
