package kube

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/keepwatch/keepwatch"
)

// confirmingWatch is how long the server keeps the watch of Unchanged open. kube-apiserver sends
// a bookmark 2 s before the end of a watch.
const confirmingWatch = 5 * time.Second

// Unchanged reports whether the resource has changed after from up to to.
//
// The revision of a list does not show it: it is the newest one of the server's storage, which
// every write of any resource advances. Unchanged asks in two ways:
//
//   - by a watch from from whose end is near. Its first event or the bookmark before its end
//     decides, at the cost of one request of 3 s. Every server with a watch cache sends it.
//   - if the watch sends neither, by lists of metadata at to and at from; see CompareStates.
//     Servers without a watch cache send no bookmarks, such as kube-apiserver for Events.
//
// If the server has sent bookmarks before, a watch without any is one of a connection that holds back what the server
// sends, or of a server whose watches are stuck (kubernetes #97294). Equal states do not show that nothing has
// happened in between then: an object may have come and gone.
func (s *Source) Unchanged(ctx context.Context, from, to keepwatch.Revision) error {
	if decided, err := s.askWatch(ctx, from, to); decided {
		return err
	}
	return CompareStates(ctx, s.name, from, to, s.ListAt)
}

// askWatch decides by a watch, unless that sends nothing that decides.
func (s *Source) askWatch(ctx context.Context, from, to keepwatch.Revision) (decided bool, err error) {
	q := s.watchQuery()
	q.Set("resourceVersion", from.String())
	q.Set("timeoutSeconds", strconv.Itoa(int(confirmingWatch/time.Second)))
	x, failure := s.get(ctx, "watch", watchAccept[MetadataOnly], q)
	if failure != nil {
		return false, nil
	}
	defer x.body.close()
	x.idle.setLimit(confirmingWatch + time.Second)
	x.idle.cumulative = true
	for frames, nothing := s.framesBuiltBy(builder{}, x, from), true; ; nothing = false {
		e, failure := frames.next()
		switch {
		case failure != nil && nothing && s.bookmarked.Load() &&
			(failure.Kind == keepwatch.Ended || failure.Kind == keepwatch.Idle):
			return true, keepwatch.Failed(keepwatch.Silent,
				"watch %s: the watch is silent, bookmarks included, and may have been between revisions %v and %v", s.name, from, to)
		case failure != nil:
			return false, nil
		case e.revision > to, e.bookmark() && e.revision == to:
			return true, nil
		case e.bookmark():
			continue // the server's cache is older
		case e.revision > from, e.revision == from && e.change.Type == keepwatch.Deleted: // see internal/deletions
			return true, silent(s.name, from, to)
		default:
			return false, nil // a watch that begins from scratch
		}
	}
}

// CompareStates compares a resource's states at two revisions by their objects' revisions and
// number: an object that was added or changed has a revision above from, and if there is none, a
// deletion makes the number smaller. listAt lists the state at exactly one revision, as
// [Source.ListAt] does. It fails with Silent if they differ, or if the server has no lists at
// exactly one revision, so that only a new list is sure; with Expired, if from is too old.
func CompareStates(ctx context.Context, name string, from, to keepwatch.Revision,
	listAt func(context.Context, keepwatch.Revision, func([]keepwatch.Object) error) error) error {
	var after, before int
	err := listAt(ctx, to, func(objects []keepwatch.Object) error {
		after += len(objects)
		for _, o := range objects {
			if o.Revision() > from {
				return silent(name, from, to)
			}
		}
		return nil
	})
	if err == nil {
		err = listAt(ctx, from, func(objects []keepwatch.Object) error {
			before += len(objects)
			return nil
		})
	}
	failure, _ := errors.AsType[*keepwatch.Failure](err)
	switch {
	case err == nil && before != after, failure != nil && (failure.Kind == keepwatch.Rejected ||
		failure.Kind == keepwatch.ProtocolViolation):
		return silent(name, from, to)
	}
	return err
}

func silent(name string, from, to keepwatch.Revision) *keepwatch.Failure {
	return keepwatch.Failed(keepwatch.Silent,
		"watch %s: the watch is silent, although the resource has changed between revisions %v and %v", name, from, to)
}
