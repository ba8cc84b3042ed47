package storage

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Watch watches the objects at a key or below it. Where it begins is settled when it
// returns; what goes wrong from then on comes as an error event.
func (s *Storage) Watch(ctx context.Context, key string, options apistorage.ListOptions) (watch.Interface, error) {
	feed, err := s.Feed(ctx, key, options)
	if wrong := (requestError{}); errors.As(err, &wrong) {
		return nil, wrong.error
	}
	if err != nil {
		return failed(ctx, err), nil
	}
	return s.watch(ctx, feed), nil
}

// beginning is where a watch starts: with the objects of a state, or behind a cursor.
type beginning struct {
	state  *store.Snapshot // nil if the objects are not sent
	marked bool            // the end of the objects is, by a bookmark
	cursor store.Cursor
}

// beginning finds where a watch starts.
func (s *Storage) beginning(ctx context.Context, revision keepwatch.Revision, options apistorage.ListOptions) (beginning, error) {
	if initial := options.SendInitialEvents; initial == nil && revision == 0 {
		return at(s.store.Snapshot(), false), nil
	} else if initial != nil && *initial {
		snapshot, err := s.initialState(ctx, revision, options.ResourceVersion)
		if err != nil {
			return beginning{}, err
		}
		return at(snapshot, options.Predicate.AllowWatchBookmarks), nil
	}
	now := s.store.Snapshot().Cursor()
	switch {
	case revision > 0:
		if err := s.rejectFuture(ctx, revision); err != nil {
			if apierrors.IsResourceExpired(err) {
				s.meter.resumed(gone)
			}
			return beginning{}, err
		}
		now.Revision = revision
	case options.ResourceVersion == "":
		newest, err := s.source.Newest(ctx)
		if err != nil {
			return beginning{}, err
		}
		now.Revision = max(newest, now.Revision)
	}
	return beginning{cursor: now}, nil
}

// rejectFuture returns Expired if etcd has not reached a revision that the store does not
// have. etcd says so by a quorum read that began after the call, so that no revision of a
// write that was acknowledged before is rejected: the revision is then one of a history
// that a restore of etcd has replaced. Clients of every language list again after Expired;
// after "Too large resource version" in a watch some end, and some ask again for ever.
// While etcd is unavailable, rejectFuture tries again for as long as reads wait for a
// revision.
func (s *Storage) rejectFuture(ctx context.Context, revision keepwatch.Revision) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for s.store.Held() < revision {
		newest, err := s.source.Newest(waiting)
		switch {
		case err == nil && newest < revision:
			return apierrors.NewResourceExpired(fmt.Sprintf(
				"too old resource version: %d is not in etcd's history, whose newest revision is %d", revision, newest))
		case err == nil:
			return nil
		case !away(err):
			return err
		case !rest(waiting, askAgain):
			return err
		}
	}
	return nil
}

// initialState returns the state that a watch sends first: the newest one if no revision
// is named.
func (s *Storage) initialState(ctx context.Context, revision keepwatch.Revision, named string) (*store.Snapshot, error) {
	if named == "" {
		return s.newest(ctx)
	}
	if err := s.rejectFuture(ctx, revision); err != nil {
		return nil, err
	}
	return s.notOlderThan(ctx, revision)
}

func at(state *store.Snapshot, marked bool) beginning {
	return beginning{state, marked, state.Cursor()}
}

// failed is a watch that ends with an error at once, or with nothing if it is not
// wanted any more.
func failed(ctx context.Context, err error) watch.Interface {
	events := make(chan watch.Event, 1)
	if ctx.Err() == nil {
		events <- errorEvent(err)
	}
	close(events)
	return watch.NewProxyWatcher(events)
}

// errorEvent is an error in a watch.
func errorEvent(err error) watch.Event {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	return watch.Event{Type: watch.Error, Object: &status}
}

// unreadDeletion says that an object was deleted which can't be read. Clients list
// for this reason, and so notice (KEP-3926).
func unreadDeletion(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInternalServerError,
		Reason:  metav1.StatusReasonStoreReadError,
		Message: "saw a DELETED event, but object data is corrupt - " + err.Error(),
	}}
}
