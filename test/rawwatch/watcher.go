package rawwatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/internal/eventframes"
	"github.com/keepwatch/keepwatch/test/history"
)

// pause is how long a watcher waits before it connects again.
const pause = 20 * time.Millisecond

// watcher follows one view and records what it receives.
type watcher struct {
	view
	hosts  []string // of which each connection takes the next
	lists  string   // where it lists, unless it is empty
	client *http.Client

	mu      sync.Mutex
	start   keepwatch.Revision // zero if it begins with a streaming list
	cursor  keepwatch.Revision // up to where records go
	pending []keepwatch.Change // of one revision above cursor: the next event may have the same revision
	arrived time.Time          // of the newest pending change
	records []check.Record
	state   map[keepwatch.Key]keepwatch.Object // of a streaming list that has not ended; nil otherwise
	watches int                                // that were answered with a stream
	opened  int                                // that were requested
	failure error                              // for which it gave up
}

// run watches until ctx ends, or until the server refuses it permanently.
func (w *watcher) run(ctx context.Context) {
	for {
		err := w.watch(ctx)
		w.mu.Lock()
		w.flush()
		if ctx.Err() != nil {
			w.record(check.Ended{Err: context.Cause(ctx), Asked: context.Cause(ctx), At: time.Now()})
			w.mu.Unlock()
			return
		}
		var failure *keepwatch.Failure
		if !errors.As(err, &failure) || final(failure.Kind) {
			w.failure = err
			w.mu.Unlock()
			return
		}
		w.record(check.Ended{Err: failure, At: time.Now()})
		w.record(check.Resumed{Cursor: w.cursor})
		w.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// final reports whether a client that may not list cannot recover.
func final(kind keepwatch.FailureKind) bool {
	switch kind {
	case keepwatch.Ended, keepwatch.Unreachable, keepwatch.Throttled, keepwatch.ServerError, keepwatch.RevisionTooLarge:
		return false
	}
	return true
}

// watch is one request. It returns why the stream ended, never nil.
func (w *watcher) watch(ctx context.Context) error {
	response, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	next := eventframes.Reader(response.Body, w.protobuf)
	for {
		f, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return keepwatch.Failed(keepwatch.Ended, "%w", err)
		case err != nil: // also of a frame that a killed server has torn
			return keepwatch.Failed(keepwatch.Unreachable, "%w", err)
		}
		if err := w.receive(f); err != nil {
			return err
		}
	}
}

// open opens a watch from the cursor.
func (w *watcher) open(ctx context.Context) (*http.Response, error) {
	path := w.url(w.parameters())
	response, err := w.get(ctx, w.host(), path, w.accept())
	if err != nil {
		return nil, keepwatch.Failed(keepwatch.Unreachable, "%w", err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return nil, keepwatch.Failed(kindOf(response.StatusCode), "GET %s: %s: %s", path, response.Status, text)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watches++
	return response, nil
}

// parameters are those of the next watch, from the cursor or, as long as it has not received its first state, with
// that.
func (w *watcher) parameters() url.Values {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := url.Values{"watch": {"true"}}
	if !w.quiet {
		p.Set("allowWatchBookmarks", "true")
	}
	if w.brief {
		p.Set("timeoutSeconds", "2")
	}
	if w.state = nil; w.initial && w.cursor == 0 {
		w.state = map[keepwatch.Key]keepwatch.Object{}
		p.Set("allowWatchBookmarks", "true")
		p.Set("sendInitialEvents", "true")
		p.Set("resourceVersionMatch", "NotOlderThan")
		return p
	}
	p.Set("resourceVersion", w.cursor.String())
	return p
}

// host is that of the next connection.
func (w *watcher) host() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened++
	return w.hosts[(w.opened-1)%len(w.hosts)]
}

func (w *watcher) get(ctx context.Context, host, path, accept string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, host+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	return w.client.Do(request)
}

// kindOf returns the failure that an HTTP status means.
func kindOf(code int) keepwatch.FailureKind {
	switch code {
	case http.StatusGone:
		return keepwatch.Expired
	case http.StatusTooManyRequests:
		return keepwatch.Throttled
	case http.StatusNotFound:
		return keepwatch.Absent
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return keepwatch.ServerError
	}
	return keepwatch.UnknownStatus
}

// receive handles one event.
func (w *watcher) receive(f eventframes.Frame) error {
	switch f.Type {
	case "BOOKMARK":
		revision, err := history.RevisionOf(f.Object)
		if err != nil {
			return keepwatch.Failed(keepwatch.Undecodable, "%w", err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.state != nil {
			return w.endState(revision, f)
		}
		w.flush()
		w.deliver(revision, nil, time.Now())
		return nil
	case "ERROR":
		status, err := statusOf(f)
		if err != nil {
			return keepwatch.Failed(keepwatch.Undecodable, "%w", err)
		}
		return failureOf(status)
	}
	o, err := history.Parse(f.Object, 0)
	if err != nil {
		return keepwatch.Failed(keepwatch.Undecodable, "%w", err)
	}
	change := keepwatch.Change{Type: changeTypes[f.Type], Revision: o.Revision(), Object: o}
	if change.Type == 0 {
		return keepwatch.Failed(keepwatch.ProtocolViolation, "an event of type %q", f.Type)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != nil {
		if delete(w.state, o.Key()); change.Type != keepwatch.Deleted {
			w.state[o.Key()] = o
		}
		return nil
	}
	if len(w.pending) > 0 && w.pending[0].Revision != change.Revision {
		w.flush()
	}
	w.pending, w.arrived = append(w.pending, change), time.Now()
	return nil
}

// endState records the state that a streaming list has sent. w.mu is locked.
func (w *watcher) endState(revision keepwatch.Revision, f eventframes.Frame) error {
	if !bytes.Contains(f.Object, []byte(metav1.InitialEventsAnnotationKey)) {
		return keepwatch.Failed(keepwatch.ProtocolViolation, "a bookmark at %d before the end of the initial events",
			revision)
	}
	gap := keepwatch.Gap{To: revision, Reason: keepwatch.GapExpired}
	for _, o := range w.state {
		gap.Changes = append(gap.Changes, keepwatch.Change{Type: keepwatch.Added, Revision: o.Revision(), Object: o})
	}
	w.state = nil
	w.record(check.Received{Delivery: gap, At: time.Now()})
	w.cursor = revision
	return nil
}

var changeTypes = map[string]keepwatch.ChangeType{
	"ADDED": keepwatch.Added, "MODIFIED": keepwatch.Modified, "DELETED": keepwatch.Deleted,
}

// failureOf is an ERROR event.
func failureOf(status *metav1.Status) error {
	kind := kindOf(int(status.Code))
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if cause.Type == metav1.CauseTypeResourceVersionTooLarge {
				kind = keepwatch.RevisionTooLarge
			}
		}
	}
	return keepwatch.Failed(kind, "ERROR event %d %s: %s", status.Code, status.Reason, status.Message)
}

// flush delivers the pending events. w.mu is locked.
func (w *watcher) flush() {
	if len(w.pending) > 0 {
		changes := w.pending
		w.pending = nil
		w.deliver(changes[0].Revision, changes, w.arrived)
	}
}

// deliver records a batch up to a revision, and when it arrived. w.mu is locked.
func (w *watcher) deliver(to keepwatch.Revision, changes []keepwatch.Change, at time.Time) {
	w.record(check.Received{Delivery: keepwatch.Batch{From: w.cursor, To: to, Changes: changes}, At: at})
	w.cursor = to
}

func (w *watcher) record(r check.Record) { w.records = append(w.records, r) }

// reached reports whether all events up to a revision were received.
func (w *watcher) reached(revision keepwatch.Revision) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure != nil {
		return false, fmt.Errorf("%s gave up at %d: %w", w.view, w.cursor, w.failure)
	}
	return w.cursor >= revision || len(w.pending) > 0 && w.pending[0].Revision >= revision, nil
}
