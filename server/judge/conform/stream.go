package conform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch"
)

// stream is a watch.
type stream struct {
	subject *subject
	cancel  context.CancelFunc
	body    io.Closer
	events  chan eventOrError
	done    chan struct{} // closed when the reader has ended
	peeked  *peeked       // what next returns next, or nil
}

// peeked is what next has returned.
type peeked struct {
	event  event
	object *object
	err    error
}

type eventOrError struct {
	event
	err error
}

// watch opens a watch in JSON. It returns nil and the answer if the server refuses it.
func (s *subject) watch(ctx context.Context, q url.Values) (*stream, answer, error) {
	return s.watchAs(ctx, q, asJSON)
}

// watchAs is watch in another encoding.
func (s *subject) watchAs(ctx context.Context, q url.Values, accept string) (*stream, answer, error) {
	q.Set("watch", "true")
	ctx, cancel := context.WithCancel(ctx)
	response, a, err := s.stream(ctx, q, http.Header{"Accept": {accept}})
	if response == nil {
		cancel()
		return nil, a, err
	}
	return s.follow(ctx, cancel, response.Body, events(response.Body, accept == asProtobuf)), a, nil
}

// stream makes a GET whose answer is read by the caller. It repeats a request that the server refuses temporarily. The
// response is nil if the answer is not 200: then that has its body.
func (s *subject) stream(ctx context.Context, q url.Values, header http.Header) (response *http.Response, a answer,
	err error) {
	a, err = s.recovered(ctx, func() (answer, error) {
		opened, err := s.open(ctx, http.MethodGet, "", q, header, nil)
		if err != nil {
			return answer{}, err
		}
		if opened.StatusCode == http.StatusOK {
			response = opened
			return answer{code: opened.StatusCode}, nil
		}
		defer opened.Body.Close()
		read, err := io.ReadAll(io.LimitReader(opened.Body, maxBody))
		return answer{opened.StatusCode, opened.Header, read}, err
	})
	return response, a, err
}

// follow reads the events of an open watch. The stream ends by cancel and by closing the body.
func (s *subject) follow(ctx context.Context, cancel context.CancelFunc, body io.Closer,
	next func() (event, error)) *stream {
	w := &stream{s, cancel, body, make(chan eventOrError), make(chan struct{}), nil}
	go w.read(ctx, next)
	return w
}

// mustWatch opens a watch where no rule allows an error.
func (s *subject) mustWatch(ctx context.Context, q url.Values) (*stream, error) {
	w, a, err := s.watch(ctx, q)
	if err == nil && w == nil {
		err = s.unexpected("watching", a)
	}
	return w, err
}

// read reads the events until the stream ends or ctx is done.
func (w *stream) read(ctx context.Context, next func() (event, error)) {
	defer close(w.done)
	for {
		e, err := next()
		select {
		case w.events <- eventOrError{e, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// stop ends the watch.
func (w *stream) stop() {
	w.cancel()
	w.body.Close()
	<-w.done
}

// errSilent is the error of next when no event follows in time.
var errSilent = errors.New("no event")

// next returns the next event of the rule's objects, and bookmarks and errors.
func (w *stream) next(ctx context.Context, within time.Duration) (event, *object, error) {
	if p := w.peeked; p != nil {
		w.peeked = nil
		return p.event, p.object, p.err
	}
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for {
		select {
		case e := <-w.events:
			if e.err != nil || e.Type == "ERROR" || e.Type == "BOOKMARK" {
				return e.event, nil, e.err
			}
			o, err := parseObject(e.object())
			if err != nil || strings.HasPrefix(o.key.Name, w.subject.prefix) {
				return e.event, o, err
			}
		case <-deadline.C:
			return event{}, nil, fmt.Errorf("%w within %v", errSilent, within)
		case <-ctx.Done():
			return event{}, nil, ctx.Err()
		}
	}
}

// peek returns the next event, which next returns again.
func (w *stream) peek(ctx context.Context) event {
	e, o, err := w.next(ctx, w.subject.waits.event)
	w.peeked = &peeked{e, o, err}
	return e
}

// expectation is an event that a rule requires.
type expectation struct {
	kind     string
	name     string
	revision keepwatch.Revision // 0: not compared
	content  string             // empty: not compared
}

// of returns the expected event of a state.
func of(kind string, o *object) expectation {
	return expectation{kind, o.key.Name, o.revision, o.content()}
}

func (e expectation) String() string {
	return fmt.Sprintf("%s %s at %d with %q", e.kind, e.name, e.revision, e.content)
}

// expect compares the next events with the required ones, in order.
func (w *stream) expect(ctx context.Context, want ...expectation) (outcome, error) {
	for _, required := range want {
		e, o, err := w.next(ctx, w.subject.waits.event)
		for err == nil && e.Type == "BOOKMARK" {
			e, o, err = w.next(ctx, w.subject.waits.event)
		}
		switch {
		case ctx.Err() != nil:
			return outcome{}, ctx.Err()
		case err != nil:
			return broken(required.String(), err.Error()), nil
		case o == nil:
			return broken(required.String(), fmt.Sprintf("%s %.200s", e.Type, e.Object)), nil
		}
		got := of(e.Type, o)
		if required.revision == 0 {
			got.revision = 0
		}
		if required.content == "" {
			got.content = ""
		}
		if got != required {
			return broken(required.String(), got.String()), nil
		}
	}
	return kept, nil
}
