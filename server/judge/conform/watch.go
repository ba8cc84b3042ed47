package conform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"
)

func watchesSince(ctx context.Context, s *subject) (outcome, error) {
	if _, err := s.create(ctx, "before", nil, ""); err != nil {
		return outcome{}, err
	}
	start, err := s.mustList(ctx, nil)
	if err != nil {
		return outcome{}, err
	}
	q := func() url.Values { return query("resourceVersion", start.revision.String()) }
	early, err := s.mustWatch(ctx, q())
	if err != nil {
		return outcome{}, err
	}
	defer early.stop()
	want, err := s.story(ctx)
	if err != nil {
		return outcome{}, err
	}
	result, err := early.expect(ctx, want...)
	if err != nil {
		return outcome{}, err
	}
	late, err := s.mustWatch(ctx, q())
	if err != nil {
		return outcome{}, err
	}
	defer late.stop()
	replayed, err := late.expect(ctx, want...)
	return result.and(replayed), err
}

// story changes two objects in all ways and returns the events.
func (s *subject) story(ctx context.Context) ([]expectation, error) {
	var want []expectation
	add := func(kind string, o *object, err error) (*object, error) {
		if err == nil {
			want = append(want, of(kind, o))
		}
		return o, err
	}
	created := func(name string) (*object, error) {
		o, err := s.create(ctx, name, map[string]string{"color": "red"}, "0")
		return add("ADDED", o, err)
	}
	updated := func(o *object, value string) (*object, error) {
		o, err := s.update(ctx, o, o.labels, value)
		return add("MODIFIED", o, err)
	}
	removed := func(o *object) error {
		want = append(want, expectation{kind: "DELETED", name: o.key.Name, content: o.content()})
		return s.remove(ctx, o)
	}
	a, err := created("a")
	if err != nil {
		return nil, err
	}
	b, err := created("b")
	if err != nil {
		return nil, err
	}
	if a, err = updated(a, "1"); err != nil {
		return nil, err
	}
	if err := removed(b); err != nil {
		return nil, err
	}
	if a, err = updated(a, "2"); err != nil {
		return nil, err
	}
	if err := removed(a); err != nil {
		return nil, err
	}
	_, err = created("a")
	return want, err
}

func watchesFromAny(ctx context.Context, s *subject) (outcome, error) {
	all, err := s.fill(ctx, 5, noLabels, "")
	if err != nil {
		return outcome{}, err
	}
	result := kept
	for _, revision := range []string{"", "0"} {
		// A server that answers 0 from a cache has the objects of an older state, which this list brings up to date.
		if _, err := s.mustList(ctx, query("resourceVersion", all[len(all)-1].revision.String())); err != nil {
			return outcome{}, err
		}
		w, err := s.mustWatch(ctx, query("resourceVersion", revision))
		if err != nil {
			return outcome{}, err
		}
		one, err := w.initially(ctx, all)
		w.stop()
		if err != nil {
			return outcome{}, err
		}
		result = result.and(one)
	}
	return result, nil
}

// initially judges whether the next events are ADDED, one for each object, in any order.
func (w *stream) initially(ctx context.Context, all []*object) (outcome, error) {
	var got []*object
	for range all {
		e, o, err := w.next(ctx, w.subject.waits.event)
		if ctx.Err() != nil {
			return outcome{}, ctx.Err()
		}
		if err != nil || o == nil || e.Type != "ADDED" {
			return broken(fmt.Sprintf("ADDED for each of %v", statesOf(all)), fmt.Sprintf("%s %.200s %v behind %v", e.Type,
				e.Object, err, statesOf(got))), nil
		}
		got = append(got, o)
	}
	if want, got := statesOf(all), statesOf(got); !slices.Equal(want, got) {
		return broken(fmt.Sprintf("ADDED for each of %v", want), fmt.Sprint(got)), nil
	}
	return kept, nil
}

func watchesEdges(ctx context.Context, s *subject) (outcome, error) {
	start, err := s.mustList(ctx, nil)
	if err != nil {
		return outcome{}, err
	}
	w, err := s.mustWatch(ctx, query("resourceVersion", start.revision.String(), "labelSelector", "color=red"))
	if err != nil {
		return outcome{}, err
	}
	defer w.stop()
	red, green := map[string]string{"color": "red"}, map[string]string{"color": "green"}
	o, err := s.create(ctx, "a", green, "0")
	if err != nil {
		return outcome{}, err
	}
	entered, err := s.update(ctx, o, red, "1")
	if err != nil {
		return outcome{}, err
	}
	changed, err := s.update(ctx, entered, red, "2")
	if err != nil {
		return outcome{}, err
	}
	leaving, err := s.update(ctx, changed, green, "3")
	if err != nil {
		return outcome{}, err
	}
	outside, err := s.update(ctx, leaving, green, "4")
	if err != nil {
		return outcome{}, err
	}
	if err := s.remove(ctx, outside); err != nil {
		return outcome{}, err
	}
	last, err := s.create(ctx, "b", red, "")
	if err != nil {
		return outcome{}, err
	}
	// The state before the change, at the revision of the change.
	gone := of("DELETED", changed)
	gone.revision = leaving.revision
	return w.expect(ctx, of("ADDED", entered), of("MODIFIED", changed), gone, of("ADDED", last))
}

func watchesDeletions(ctx context.Context, s *subject) (outcome, error) {
	o, err := s.create(ctx, "a", nil, "0")
	if err != nil {
		return outcome{}, err
	}
	w, err := s.mustWatch(ctx, query("resourceVersion", o.revision.String()))
	if err != nil {
		return outcome{}, err
	}
	defer w.stop()
	if o, err = s.update(ctx, o, map[string]string{"color": "red"}, "last"); err != nil {
		return outcome{}, err
	}
	if err := s.remove(ctx, o); err != nil {
		return outcome{}, err
	}
	again, err := s.create(ctx, "a", nil, "again")
	if err != nil {
		return outcome{}, err
	}
	if result, err := w.expect(ctx, of("MODIFIED", o)); err != nil || result.verdict != Kept {
		return result, err
	}
	e, deleted, err := w.next(ctx, w.subject.waits.event)
	for err == nil && e.Type == "BOOKMARK" {
		e, deleted, err = w.next(ctx, w.subject.waits.event)
	}
	if ctx.Err() != nil {
		return outcome{}, ctx.Err()
	}
	required := fmt.Sprintf("DELETED %s with UID %s, %q, at a revision between %d and %d", o.key.Name, o.uid, o.content(),
		o.revision, again.revision)
	if err != nil || deleted == nil {
		return broken(required, fmt.Sprintf("%s %.200s %v", e.Type, e.Object, err)), nil
	}
	if e.Type != "DELETED" || deleted.uid != o.uid || deleted.content() != o.content() || deleted.revision <= o.revision ||
		deleted.revision >= again.revision {
		return broken(required, fmt.Sprintf("%s %v with UID %s, %q", e.Type, deleted, deleted.uid, deleted.content())), nil
	}
	return w.expect(ctx, of("ADDED", again))
}

func watchesOneName(ctx context.Context, s *subject) (outcome, error) {
	start, err := s.mustList(ctx, nil)
	if err != nil {
		return outcome{}, err
	}
	w, err := s.mustWatch(ctx, query("resourceVersion", start.revision.String(), "fieldSelector", "metadata.name="+
		s.prefix+"a"))
	if err != nil {
		return outcome{}, err
	}
	defer w.stop()
	// Names that begin like the watched one, and one of which it is the end.
	for _, name := range []string{"a1", "a-b", "a.b", "b-a"} {
		if _, err := s.create(ctx, name, nil, ""); err != nil {
			return outcome{}, err
		}
	}
	o, err := s.create(ctx, "a", nil, "")
	if err != nil {
		return outcome{}, err
	}
	return w.expect(ctx, of("ADDED", o))
}

func watchesWithoutBookmarks(ctx context.Context, s *subject) (outcome, error) {
	o, err := s.create(ctx, "a", nil, "")
	if err != nil {
		return outcome{}, err
	}
	// Servers send a bookmark 2 s before the end of a watch, and not in its first second.
	w, err := s.mustWatch(ctx, query("resourceVersion", o.revision.String(), "timeoutSeconds", "4"))
	if err != nil {
		return outcome{}, err
	}
	defer w.stop()
	for {
		e, _, err := w.next(ctx, w.subject.waits.event)
		switch {
		case ctx.Err() != nil:
			return outcome{}, ctx.Err()
		case errors.Is(err, io.EOF):
			return kept, nil
		case err != nil:
			return broken("the end of the stream", err.Error()), nil
		case e.Type == "BOOKMARK":
			return broken("no bookmark", fmt.Sprintf("%s %.200s", e.Type, e.Object)), nil
		}
	}
}

func watchesUntilTimeout(ctx context.Context, s *subject) (outcome, error) {
	const seconds, most = 2, 12
	asked := time.Now()
	w, err := s.mustWatch(ctx, query("timeoutSeconds", fmt.Sprint(seconds)))
	if err != nil {
		return outcome{}, err
	}
	defer w.stop()
	opened := time.Now() // minutes later, if the server has refused it before
	for {
		e, _, err := w.next(ctx, w.subject.waits.event)
		switch {
		case ctx.Err() != nil:
			return outcome{}, ctx.Err()
		case errors.Is(err, io.EOF):
			lasted := time.Since(opened)
			if time.Since(asked) < (seconds-1)*time.Second || lasted > most*time.Second {
				return broken("an end after 2s", fmt.Sprintf("an end after %v", lasted)), nil
			}
			return kept, nil
		case err != nil:
			return broken("the end of the stream", err.Error()), nil
		case e.Type == "ERROR":
			return broken("the end of the stream", fmt.Sprintf("ERROR %.200s", e.Object)), nil
		}
	}
}

// expired reports whether a watch says that the history is gone, by its status or in its first event.
func (w *stream) expired(e event) bool {
	status, err := e.status()
	return err == nil && e.Type == "ERROR" && status.Code == http.StatusGone
}

func watchesOld(ctx context.Context, s *subject) (outcome, error) {
	want, err := s.story(ctx)
	if err != nil {
		return outcome{}, err
	}
	w, a, err := s.watch(ctx, query("resourceVersion", "1"))
	switch {
	case err != nil:
		return outcome{}, err
	case a.code == http.StatusGone:
		return kept, nil
	case w == nil:
		return broken("410, or the history", a.String()), nil
	}
	defer w.stop()
	e, o, err := w.next(ctx, w.subject.waits.event)
	if ctx.Err() != nil {
		return outcome{}, ctx.Err()
	}
	if err == nil && w.expired(e) {
		return kept, nil
	}
	if err != nil || o == nil {
		return broken("410, or the history", fmt.Sprintf("%s %.200s %v", e.Type, e.Object, err)), nil
	}
	if got := of(e.Type, o); got != want[0] {
		return broken("410, or "+want[0].String(), got.String()), nil
	}
	return w.expect(ctx, want[1:]...)
}

func watchesFuture(ctx context.Context, s *subject) (outcome, error) {
	o, err := s.create(ctx, "a", nil, "")
	if err != nil {
		return outcome{}, err
	}
	w, a, err := s.inFuture().watch(ctx, query("resourceVersion", (o.revision+ahead).String(), "timeoutSeconds", "5"))
	switch {
	case err != nil:
		return outcome{}, err
	case a.code == http.StatusGone || tooLarge(a):
		return kept, nil
	case w == nil:
		return broken("a stream, 410, or 504 with the cause ResourceVersionTooLarge", a.String()), nil
	}
	defer w.stop()
	if o, err = s.update(ctx, o, nil, "1"); err != nil {
		return outcome{}, err
	}
	for {
		e, received, err := w.next(ctx, 10*time.Second)
		switch {
		case ctx.Err() != nil:
			return outcome{}, ctx.Err()
		case err != nil || e.Type == "ERROR":
			return kept, nil // the stream ends, or is silent
		case received != nil:
			return broken(fmt.Sprintf("no event up to %d", o.revision+ahead), of(e.Type, received).String()), nil
		}
	}
}

func refusesInvalidWatches(ctx context.Context, s *subject) (outcome, error) {
	var cases []url.Values
	for _, q := range []url.Values{
		query("sendInitialEvents", "true", "resourceVersionMatch", "Exact"),
		query("resourceVersionMatch", "NotOlderThan"),
		query("sendInitialEvents", "true"),
	} {
		q.Set("watch", "true")
		q.Set("timeoutSeconds", "1")
		cases = append(cases, q)
	}
	return s.refuses(ctx, cases)
}
