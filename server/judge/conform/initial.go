package conform

import (
	"context"
	"fmt"
	"net/url"
	"slices"

	"github.com/keepwatch/keepwatch"
)

// streamingList are the parameters of a watch with initial events.
func streamingList(revision string) url.Values {
	q := query("sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true")
	if revision != "" {
		q.Set("resourceVersion", revision)
	}
	return q
}

// initialEvents reads the initial events up to their bookmark. The outcome is not kept if something
// else comes; the stream is nil if the server refuses the request. It may do so by an ERROR in place of the first
// event: kube-apiserver does on an etcd without the progress of watches, and as long as its cache is behind.
func (s *subject) initialEvents(ctx context.Context, q url.Values) (*stream, *listed, outcome, error) {
	var w *stream
	inStream := false
	a, err := s.recovered(ctx, func() (answer, error) {
		opened, a, err := s.watch(ctx, q)
		if inStream = opened != nil; !inStream {
			return a, err
		}
		if e := opened.peek(ctx); e.Type == "ERROR" {
			if status, err := e.status(); err == nil {
				opened.stop()
				return answer{code: int(status.Code), body: e.Object}, nil
			}
		}
		w = opened
		return a, nil
	})
	switch {
	case err != nil:
		return nil, nil, outcome{}, err
	case w == nil && (inStream || a.refused()):
		return nil, nil, notOffered("the server refuses sendInitialEvents: " + a.String()), nil
	case w == nil:
		return nil, nil, outcome{}, s.unexpected("watching with sendInitialEvents", a)
	}
	state := &listed{}
	for {
		e, o, err := w.next(ctx, w.subject.waits.event)
		switch {
		case ctx.Err() != nil:
			w.stop()
			return nil, nil, outcome{}, ctx.Err()
		case err == nil && e.initialEventsEnd():
			end, err := parseObject(e.Object)
			if err != nil {
				w.stop()
				return nil, nil, outcome{}, err
			}
			state.revision = end.revision
			return w, state, kept, nil
		case err != nil || o == nil || e.Type != "ADDED":
			w.stop()
			return nil, nil, broken("ADDED events and the bookmark behind them", fmt.Sprintf("%s %.200s %v", e.Type, e.Object,
				err)), nil
		}
		state.items = append(state.items, o)
	}
}

// isStateAt judges whether initial events are the state at their revision, which is one revision or later.
func (s *subject) isStateAt(ctx context.Context, state *listed, least keepwatch.Revision) (outcome, error) {
	if state.revision < least {
		return broken(fmt.Sprintf("a state at %d or later", least), fmt.Sprintf("one at %d", state.revision)), nil
	}
	then, a, err := s.exactly(ctx, state.revision)
	switch {
	case err != nil:
		return outcome{}, err
	case then == nil && tooLarge(a):
		return broken("the revision of a state", fmt.Sprintf("%d, of which the server says: %v", state.revision, a)), nil
	case then == nil:
		return a.declines("the state to compare with, or 410"), nil
	}
	return sameState(then, state), nil
}

func streamsNewest(ctx context.Context, s *subject) (outcome, error) {
	all, err := s.fill(ctx, 10, noLabels, "")
	if err != nil {
		return outcome{}, err
	}
	if err := s.remove(ctx, all[3]); err != nil {
		return outcome{}, err
	}
	newest, err := s.update(ctx, all[5], nil, "changed")
	if err != nil {
		return outcome{}, err
	}
	w, state, result, err := s.initialEvents(ctx, streamingList(""))
	if w == nil {
		return result, err
	}
	defer w.stop()
	return s.isStateAt(ctx, state, newest.revision)
}

func streamsNotOlder(ctx context.Context, s *subject) (outcome, error) {
	o, err := s.create(ctx, "a", nil, "0")
	result := kept
	for i := range attempts {
		if err != nil {
			return outcome{}, err
		}
		w, state, one, err := s.initialEvents(ctx, streamingList(o.revision.String()))
		if w == nil {
			return one, err
		}
		w.stop()
		if one, err = s.isStateAt(ctx, state, o.revision); err != nil {
			return outcome{}, err
		}
		if result = result.and(one); result.verdict != Kept {
			return result, nil
		}
		if o, err = s.update(ctx, o, nil, fmt.Sprint(i+1)); err != nil {
			return outcome{}, err
		}
	}
	return result, nil
}

func streamsAny(ctx context.Context, s *subject) (outcome, error) {
	if _, err := s.fill(ctx, 5, noLabels, ""); err != nil {
		return outcome{}, err
	}
	w, state, result, err := s.initialEvents(ctx, streamingList("0"))
	if w == nil {
		return result, err
	}
	defer w.stop()
	return s.isStateAt(ctx, state, 0)
}

func streamsNone(ctx context.Context, s *subject) (outcome, error) {
	if _, err := s.fill(ctx, 3, noLabels, ""); err != nil {
		return outcome{}, err
	}
	w, a, err := s.watch(ctx, query("sendInitialEvents", "false", "resourceVersionMatch", "NotOlderThan"))
	switch {
	case err != nil:
		return outcome{}, err
	case w == nil && a.refused():
		return notOffered("the server refuses sendInitialEvents: " + a.String()), nil
	case w == nil:
		return outcome{}, s.unexpected("watching with sendInitialEvents=false", a)
	}
	defer w.stop()
	o, err := s.create(ctx, "new", nil, "")
	if err != nil {
		return outcome{}, err
	}
	return w.expect(ctx, of("ADDED", o))
}

func streamsThenChanges(ctx context.Context, s *subject) (outcome, error) {
	all, err := s.fill(ctx, 5, noLabels, "")
	if err != nil {
		return outcome{}, err
	}
	const changes = 50
	written := make(chan error, 1)
	var last *object
	go func() {
		o, err := all[0], error(nil)
		for i := 0; i < changes && err == nil; i++ {
			o, err = s.update(ctx, o, nil, fmt.Sprint(i))
		}
		last = o
		written <- err
	}()
	w, state, result, err := s.initialEvents(ctx, streamingList(""))
	if failed := <-written; err == nil {
		err = failed
	}
	if w == nil || err != nil {
		if w != nil {
			w.stop()
		}
		return result, err
	}
	defer w.stop()
	if last, err = s.update(ctx, last, nil, "behind"); err != nil { // the state may have all the others
		return outcome{}, err
	}
	var got []keepwatch.Revision
	for at := state.revision; at < last.revision; {
		e, o, err := w.next(ctx, w.subject.waits.event)
		switch {
		case ctx.Err() != nil:
			return outcome{}, ctx.Err()
		case err == nil && e.Type == "BOOKMARK":
			continue
		case err != nil || o == nil || e.Type != "MODIFIED" || o.revision <= at:
			return broken(fmt.Sprintf("MODIFIED above %d", at), fmt.Sprintf("%s %.200s %v", e.Type, e.Object, err)), nil
		}
		at = o.revision
		got = append(got, at)
	}
	// The changes behind the initial state are the ones of a watch from its revision.
	again, err := s.mustWatch(ctx, query("resourceVersion", state.revision.String()))
	if err != nil {
		return outcome{}, err
	}
	defer again.stop()
	var want []keepwatch.Revision
	for len(want) < len(got) {
		_, o, err := again.next(ctx, s.waits.event)
		if err != nil || o == nil {
			return broken(fmt.Sprintf("the changes %v in a watch from %d", got, state.revision), fmt.Sprintf("%v, %v", want,
				err)), ctx.Err()
		}
		want = append(want, o.revision)
	}
	if !slices.Equal(want, got) {
		return broken(fmt.Sprint(want), fmt.Sprint(got)), nil
	}
	return kept, nil
}
