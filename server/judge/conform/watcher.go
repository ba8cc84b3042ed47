package conform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
)

const (
	// reconnect is the wait of a watcher before it connects again.
	reconnect = 100 * time.Millisecond
	// watchTimeout is the timeoutSeconds of a storm's watches: short, so that each watcher resumes some times.
	watchTimeout = "7"
)

// view is the selection of a watcher, and its encoding.
type view struct {
	color    string // the value of the label color; empty: any
	name     string // empty: any
	protobuf bool
}

func (v view) String() string {
	text := "a watch"
	if v.color != "" {
		text += " of color=" + v.color
	}
	if v.name != "" {
		text += " of " + v.name
	}
	if v.protobuf {
		text += " as protobuf"
	}
	return text
}

// matches is the view's filter.
func (v view) matches(o keepwatch.Object) bool {
	return (v.name == "" || o.Key().Name == v.name) && (v.color == "" || o.(*object).labels["color"] == v.color)
}

// parameters are the parameters of the view's requests.
func (v view) parameters() []string {
	var pairs []string
	if v.color != "" {
		pairs = append(pairs, "labelSelector", "color="+v.color)
	}
	if v.name != "" {
		pairs = append(pairs, "fieldSelector", "metadata.name="+v.name)
	}
	return pairs
}

// watcher follows a view by watches only, and records what it receives. If the server does not have
// the history of its revision any more, it lists and records the difference as a gap.
type watcher struct {
	*subject
	view
	start keepwatch.Revision

	mu        sync.Mutex
	cursor    keepwatch.Revision
	shown     keepwatch.Revision // of the last event or list: a bookmark shows no object
	pending   []keepwatch.Change // of one revision above cursor: the next event may have the same revision
	state     map[keepwatch.Key]*object
	records   []check.Record
	deletions deletions
	resumed   int
	relisted  int
	failure   error // for which it ended before its owner ended it
}

func newWatcher(s *subject, v view, start keepwatch.Revision) *watcher {
	return &watcher{subject: s, view: v, start: start, cursor: start, state: map[keepwatch.Key]*object{},
		deletions: newDeletions()}
}

// errOver is the reason for which watchers end.
var errOver = errors.New("the storm is over")

// run watches until ctx is done, or until the server refuses permanently.
func (w *watcher) run(ctx context.Context) {
	for {
		err := w.once(ctx)
		if ctx.Err() != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.flush()
			shown := check.Shown{Revision: w.cursor}
			for _, o := range w.state {
				shown.Objects = append(shown.Objects, o)
			}
			w.records = append(w.records, shown, check.Ended{Err: errOver, Asked: errOver, At: time.Now()})
			return
		}
		var failure *keepwatch.Failure
		if !errors.As(err, &failure) || !w.recovers(ctx, failure) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.failure = err
			return
		}
		if sleep(ctx, max(reconnect, failure.RetryAfter)) != nil {
			continue
		}
	}
}

// recovers records the end of a watch and reports whether the watcher continues.
func (w *watcher) recovers(ctx context.Context, failure *keepwatch.Failure) bool {
	w.mu.Lock()
	w.flush()
	w.resumed++
	w.records = append(w.records, check.Ended{Err: failure, At: time.Now()}, check.Resumed{Cursor: w.cursor})
	w.mu.Unlock()
	switch failure.Kind {
	case keepwatch.Ended, keepwatch.Unreachable, keepwatch.Throttled, keepwatch.ServerError, keepwatch.RevisionTooLarge:
		return true
	case keepwatch.Expired:
		return w.relist(ctx)
	}
	return false
}

// relist records the difference between the state and a list. It reports false if the list fails; a
// server that cannot be reached is asked again.
func (w *watcher) relist(ctx context.Context) bool {
	for ctx.Err() == nil {
		l, a, err := w.list(ctx, query(w.parameters()...))
		if err == nil && l != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.relisted++
			w.gap(l)
			return true
		}
		if err == nil && a.code < http.StatusInternalServerError {
			return false
		}
		if sleep(ctx, reconnect) != nil {
			break
		}
	}
	return true
}

// gap records the difference between the state and a list. w.mu is held.
func (w *watcher) gap(l *listed) {
	gap := keepwatch.Gap{From: w.cursor, To: l.revision, Reason: keepwatch.GapExpired}
	listed := map[keepwatch.Key]bool{}
	removed := func(known *object) {
		gap.Changes = append(gap.Changes, keepwatch.Change{Type: keepwatch.Deleted, Revision: l.revision, Object: known})
		if w.view.color == "" { // otherwise it may exist, and not match
			w.deletions.gap(known.uid, interval{w.cursor, l.revision})
		}
	}
	for _, o := range l.items {
		listed[o.key] = true
		switch known := w.state[o.key]; {
		case known == nil:
			gap.Changes = append(gap.Changes, keepwatch.Change{Type: keepwatch.Added, Revision: o.revision, Object: o})
		case known.uid != o.uid:
			removed(known)
			gap.Changes = append(gap.Changes, keepwatch.Change{Type: keepwatch.Added, Revision: o.revision, Object: o})
		case known.revision != o.revision:
			gap.Changes = append(gap.Changes, keepwatch.Change{Type: keepwatch.Modified, Revision: o.revision, Object: o})
		}
		w.state[o.key] = o
	}
	for key, known := range w.state {
		if !listed[key] {
			removed(known)
			delete(w.state, key)
		}
	}
	w.records = append(w.records, check.Received{Delivery: gap, At: time.Now()})
	w.cursor, w.shown = l.revision, l.revision
}

// once opens one watch and receives its events. It returns the reason of its end, never nil.
func (w *watcher) once(ctx context.Context) error {
	w.mu.Lock()
	q := query(append(w.parameters(), "watch", "true", "allowWatchBookmarks", "true", "timeoutSeconds", watchTimeout,
		"resourceVersion", w.cursor.String())...)
	w.mu.Unlock()
	accept := asJSON
	if w.view.protobuf {
		accept = asProtobuf
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	response, err := w.open(ctx, http.MethodGet, "", q, http.Header{"Accept": {accept}}, nil)
	if err != nil {
		return keepwatch.Failed(keepwatch.Unreachable, "%w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		a := answer{response.StatusCode, response.Header, text}
		failure := keepwatch.Failed(w.subject.failure(a), "%s: %v", w.view, a)
		failure.RetryAfter = a.retryAfter()
		return failure
	}
	next := events(response.Body, w.view.protobuf)
	for {
		e, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return keepwatch.Failed(keepwatch.Ended, "%w", err)
		case err != nil: // also of a frame that the end of the server has cut
			return keepwatch.Failed(keepwatch.Unreachable, "%w", err)
		}
		if err := w.receive(e); err != nil {
			return err
		}
	}
}

// failure returns the failure that the answer to a watch means.
func (s *subject) failure(a answer) keepwatch.FailureKind {
	if s.temporary(a) {
		return keepwatch.Throttled
	}
	return kindOf(a.code)
}

// kindOf returns the failure that a status means.
func kindOf(code int) keepwatch.FailureKind {
	switch code {
	case http.StatusGone:
		return keepwatch.Expired
	case http.StatusTooManyRequests:
		return keepwatch.Throttled
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return keepwatch.ServerError
	}
	return keepwatch.UnknownStatus
}

// receive records one event.
func (w *watcher) receive(e event) error {
	if e.Type == "ERROR" {
		status, err := e.status()
		if err != nil {
			return keepwatch.Failed(keepwatch.Undecodable, "%w", err)
		}
		return keepwatch.Failed(kindOf(int(status.Code)), "ERROR event %d %s: %s", status.Code, status.Reason, status.Message)
	}
	o, err := parseObject(e.Object)
	if err != nil {
		return keepwatch.Failed(keepwatch.Undecodable, "%w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Type == "BOOKMARK" {
		w.flush()
		w.deliver(o.revision, nil)
		return nil
	}
	change := keepwatch.Change{Type: changeTypes[e.Type], Revision: o.revision, Object: o}
	if change.Type == 0 {
		return keepwatch.Failed(keepwatch.ProtocolViolation, "an event of type %q", e.Type)
	}
	if !strings.HasPrefix(o.key.Name, w.prefix) {
		return nil
	}
	if change.Type == keepwatch.Deleted {
		w.deletions.event(o.uid, o.revision)
	}
	if len(w.pending) > 0 && w.pending[0].Revision != change.Revision {
		w.flush()
	}
	w.pending = append(w.pending, change)
	return nil
}

var changeTypes = map[string]keepwatch.ChangeType{"ADDED": keepwatch.Added, "MODIFIED": keepwatch.Modified,
	"DELETED": keepwatch.Deleted}

// flush records the pending events. w.mu is held.
func (w *watcher) flush() {
	if len(w.pending) > 0 {
		changes := w.pending
		w.pending = nil
		w.deliver(changes[0].Revision, changes)
	}
}

// deliver records a batch up to a revision. w.mu is held.
func (w *watcher) deliver(to keepwatch.Revision, changes []keepwatch.Change) {
	w.records = append(w.records, check.Received{Delivery: keepwatch.Batch{From: w.cursor, To: to, Changes: changes},
		At: time.Now()})
	w.cursor = to
	for _, c := range changes {
		w.shown = to
		if o := c.Object.(*object); c.Type == keepwatch.Deleted {
			delete(w.state, o.key)
		} else {
			w.state[o.key] = o
		}
	}
}

// missing returns what is missing if not all events up to a revision were received.
func (w *watcher) missing(goal keepwatch.Revision) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shown >= goal || len(w.pending) > 0 && w.pending[0].Revision >= goal {
		return ""
	}
	return fmt.Sprintf("required: event %d for %v; received: events up to %d, failure: %v", goal, w.view, w.shown,
		w.failure)
}

// failed returns the failure for which the watcher has ended, or nil.
func (w *watcher) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure
}
