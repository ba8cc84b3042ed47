package kube

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch"
)

// collector records the objects that a list emits.
type collector struct{ names []string }

func (g *collector) emit(objects []keepwatch.Object) error {
	for _, o := range objects {
		g.names = append(g.names, fmt.Sprintf("%s@%v", o.Key().Name, o.Revision()))
	}
	return nil
}

func TestStreamList(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		send(w, podFrame("ADDED", "a", 6), podFrame("ADDED", "b", 3))
		send(w, endFrame(10))
		send(w, podFrame("MODIFIED", "a", 11), bookmarkFrame(15))
	}
	overEach(t, answer, Options{}, func(t *testing.T, s *Source) {
		var state collector
		revision, w, err := s.StreamList(t.Context(), 0, state.emit)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if got := fmt.Sprint(state.names); revision != 10 || got != "[a@6 b@3]" {
			t.Errorf("state %s at %v", got, revision)
		}
		batches, err := drain(w)
		wantFailure(t, err, keepwatch.Ended, "watch pods: the server ended the stream")
		wantHistory(t, batches, 10, 15, "MODIFIED a@11")
	})
}

func TestStreamListRequest(t *testing.T) {
	var seen requestLog
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		seen.record(r)
		send(w, endFrame(50))
	}), Options{LabelSelector: "a=b"})
	for _, notOlderThan := range []keepwatch.Revision{0, 42} {
		var state collector
		revision, w, err := s.StreamList(t.Context(), notOlderThan, state.emit)
		if err != nil || revision != 50 || state.names != nil {
			t.Fatalf("got %v, %v, %v", state.names, revision, err)
		}
		w.Close()
		q := seen.drain()[0].URL.Query()
		q.Del("timeoutSeconds")
		want := "allowWatchBookmarks=true&labelSelector=a%3Db&"
		if notOlderThan > 0 {
			want += "resourceVersion=42&"
		}
		want += "resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watch=true"
		if got := q.Encode(); got != want {
			t.Errorf("requested %s\nwant %s", got, want)
		}
	}
}

// Changes may precede the end of the state: the emitted objects and the first batch of the
// watch add up to the history.
func TestStreamListWithChanges(t *testing.T) {
	for name, test := range map[string]struct {
		frames  []string
		state   string
		at      keepwatch.Revision
		changes []string
	}{
		"changed": {
			[]string{podFrame("ADDED", "a", 6), podFrame("MODIFIED", "a", 8), podFrame("ADDED", "b", 9), endFrame(12)},
			"[a@6 a@8 b@9]", 12, nil,
		},
		"deleted": {
			[]string{podFrame("ADDED", "a", 6), podFrame("MODIFIED", "a", 8), podFrame("DELETED", "a", 10),
				podFrame("ADDED", "b", 11), endFrame(12)},
			"[a@6 a@8]", 9, []string{"DELETED a@10", "ADDED b@11"},
		},
		"deleted at the end": {
			[]string{podFrame("ADDED", "a", 6), podFrame("DELETED", "a", 7), endFrame(7)},
			"[a@6]", 6, []string{"DELETED a@7"},
		},
		"deleted, recreated, deleted": {
			[]string{podFrame("ADDED", "a", 6), podFrame("DELETED", "a", 7), podFrame("ADDED", "a", 8), podFrame("DELETED", "a",
				9), endFrame(12)},
			"[a@6]", 6, []string{"DELETED a@7", "ADDED a@8", "DELETED a@9"},
		},
		"deleted what was not there": {
			[]string{podFrame("DELETED", "a", 7), endFrame(12)},
			"[]", 6, []string{"DELETED a@7"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) { send(w, test.frames...) }),
				Options{})
			var state collector
			revision, w, err := s.StreamList(t.Context(), 0, state.emit)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if got := fmt.Sprint(state.names); got != test.state || revision != test.at {
				t.Errorf("state %s at %v, want %s at %v", got, revision, test.state, test.at)
			}
			batches, err := drain(w)
			wantFailure(t, err, keepwatch.Ended)
			end := test.at
			if test.changes != nil {
				end = 12
				if strings.HasSuffix(name, "end") {
					end = 7
				}
			}
			wantHistory(t, batches, test.at, end, test.changes...)
		})
	}
}

func TestStreamListSlices(t *testing.T) {
	for name, test := range map[string]struct{ objects, padding int }{"many": {1700, 0}, "long": {20, 1 << 20},
		"longer than a slice": {3, maxSliceBytes}} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
				for i := range test.objects {
					send(w, strings.Replace(podFrame("ADDED", fmt.Sprint(i), 6), `"spec":{}`, `"x":"`+strings.Repeat("x",
						test.padding)+`"`, 1))
				}
				send(w, endFrame(10))
			}), Options{})
			got := 0
			_, w, err := s.StreamList(t.Context(), 0, func(objects []keepwatch.Object) error {
				size := 0
				for _, o := range objects {
					if o.Key().Name != fmt.Sprint(got) {
						t.Fatalf("object %s, want %d", o.Key(), got)
					}
					got++
					size += len(o.(*Object).JSON())
				}
				if len(objects) == 0 || len(objects) > maxSliceObjects || size > maxSliceBytes && len(objects) > 1 {
					t.Errorf("a slice of %d objects, %d bytes", len(objects), size)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			w.Close()
			if got != test.objects {
				t.Errorf("%d objects", got)
			}
		})
	}
}

func TestStreamListFails(t *testing.T) {
	refuse := func(code int, reason, message string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			send(w, statusText(code, reason, message, ""))
		}
	}
	stream := func(frames ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { send(w, frames...) }
	}
	fault := func(code int, reason string) string {
		return `{"type":"ERROR","object":` + statusText(code, reason, "no", "") + `}`
	}
	a := podFrame("ADDED", "a", 6)
	var churn []string
	for i := range maxPendingEvents + 1 {
		churn = append(churn, podFrame("DELETED", fmt.Sprint(i), 7+i))
	}
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		kind   keepwatch.FailureKind
		want   string
	}{
		"422": {refuse(422, "Invalid", "sendInitialEvents is forbidden"), keepwatch.StreamingListUnsupported,
			"sendInitialEvents is forbidden"},
		"400": {refuse(400, "BadRequest", "what?"), keepwatch.StreamingListUnsupported, "what?"},
		"415": {refuse(415, "UnsupportedMediaType", "what?"), keepwatch.StreamingListUnsupported, "what?"},
		"403": {refuse(403, "Forbidden", "pods is forbidden"), keepwatch.Forbidden,
			"list pods: pods is forbidden"},
		"410":               {refuse(410, "Expired", "too old"), keepwatch.Expired, "too old"},
		"503":               {refuse(503, "ServiceUnavailable", "later"), keepwatch.ServerError, "later"},
		"refused in stream": {stream(fault(422, "Invalid")), keepwatch.StreamingListUnsupported, "no"},
		"expired in stream": {stream(a, fault(410, "Expired")), keepwatch.Expired, "no"},
		"ends at once":      {stream(), keepwatch.StreamingListUnsupported, "the server ended the stream"},
		"ends early":        {stream(a), keepwatch.StreamingListUnsupported, "the server ended the stream"},
		"ordinary bookmark": {stream(a, bookmarkFrame(10), endFrame(11)), keepwatch.StreamingListUnsupported,
			"a bookmark at revision 10 does not end the state"},
		"idle after an object": {func(w http.ResponseWriter, r *http.Request) { send(w, a); waitClosed(r) },
			keepwatch.StreamingListUnsupported, "the state did not end within 30ms"},
		"idle from the start": {func(w http.ResponseWriter, r *http.Request) { send(w); waitClosed(r) },
			keepwatch.StreamingListUnsupported, "the state did not end within 30ms"},
		"a list instead": {stream(podList(7, "", pod("a", 3))), keepwatch.ProtocolViolation, "unknown event type"},
		"interrupted": {func(w http.ResponseWriter, r *http.Request) { send(w, a); abortResponse() },
			keepwatch.Unreachable, "EOF"},
		"no revisions": {stream(`{"type":"ADDED","object":{"metadata":{"name":"a"}}}`), keepwatch.Unversioned,
			"no revisions"},
		"no revision": {stream(a, `{"type":"ADDED","object":{"metadata":{"name":"b"}}}`),
			keepwatch.ProtocolViolation, "object b"},
		"truncated":  {stream(a, a[:30]), keepwatch.Undecodable, "EOF"},
		"end behind": {stream(a, endFrame(5)), keepwatch.ProtocolViolation, "below 6"},
		"old deletion": {stream(a, podFrame("DELETED", "b", 6), endFrame(10)), keepwatch.ProtocolViolation,
			"ns/b was deleted at revision 6, after revision 6"},
		"stale":           {stream(endFrame(4)), keepwatch.StaleReplica, "revision 4, requested was 5"},
		"endless changes": {stream(churn...), keepwatch.StreamingListUnsupported, "10000 changes without the end"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, serve(t, "HTTP/1.1", test.answer), Options{})
			if strings.Contains(test.want, "30ms") {
				s.listEndTimeout = 30 * time.Millisecond
			}
			var state collector
			revision, w, err := s.StreamList(t.Context(), 5, state.emit)
			wantFailure(t, err, test.kind, "list pods: ", test.want)
			if revision != 0 || w != nil {
				t.Errorf("got revision %v and watch %v with an error", revision, w)
			}
		})
	}
}

// A streaming list starts over each time its connection breaks, where a list in pages resumes: the
// failure says that the server had accepted it.
func TestStreamListAccepted(t *testing.T) {
	a := podFrame("ADDED", "a", 6)
	for name, test := range map[string]struct {
		answer   http.HandlerFunc
		accepted bool
	}{
		"broken":         {func(w http.ResponseWriter, r *http.Request) { send(w, a); abortResponse() }, true},
		"broken at once": {func(w http.ResponseWriter, r *http.Request) { send(w); abortResponse() }, true},
		"truncated":      {func(w http.ResponseWriter, r *http.Request) { send(w, a, a[:30]) }, true},
		"refused":        {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) }, false},
		"not answered":   {func(w http.ResponseWriter, r *http.Request) { abortResponse() }, false},
	} {
		s := newSource(t, serve(t, "HTTP/1.1", test.answer), Options{})
		_, _, err := s.StreamList(t.Context(), 0, new(collector).emit)
		if failure, ok := errors.AsType[*keepwatch.Failure](err); !ok || failure.Accepted != test.accepted {
			t.Errorf("%s: %v is of a list that was accepted: %v", name, err, !test.accepted)
		}
	}
}

// Changes after the state do not extend the timeout.
func TestStreamListWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := remoteServer{script: func(s slowWriter) {
			s.write(podFrame("ADDED", "a", 6))
			s.wait(7 * time.Second) // there may be much of a state
			s.write(podFrame("ADDED", "b", 7))
			for n := 8; s.ctx.Err() == nil; n++ {
				s.wait(300 * time.Millisecond)
				s.write(podFrame("MODIFIED", "a", n))
			}
		}}.source(t)
		start := time.Now()
		_, _, err := s.StreamList(t.Context(), 0, new(collector).emit)
		wantFailure(t, err, keepwatch.StreamingListUnsupported, "list pods: the state did not end within 10s")
		if took := time.Since(start); took < 17*time.Second || took > 18*time.Second {
			t.Errorf("noticed after %v", took)
		}
	})
}

// The idle timeout begins with the last data, also while emit runs, after whose end StreamList returns.
func TestStreamListSilentAtEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := remoteServer{script: func(s slowWriter) {
			for n := range maxSliceObjects {
				s.write(podFrame("ADDED", fmt.Sprint(n), 6))
			}
			s.wait(time.Hour)
		}}.source(t)
		for _, emitting := range []time.Duration{time.Second, time.Minute} {
			start := time.Now()
			_, _, err := s.StreamList(t.Context(), 0, func([]keepwatch.Object) error {
				time.Sleep(emitting)
				return nil
			})
			wantFailure(t, err, keepwatch.StreamingListUnsupported, "the state did not end")
			if took := time.Since(start); took != max(emitting, 10*time.Second) {
				t.Errorf("noticed after %v", took)
			}
		}
	})
}

// A slow emit does not count as silence of the server. The next slice is read meanwhile, one at a time.
func TestStreamListSlowEmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slices = 4
		start := time.Now()
		var sent, emitted []time.Duration
		s := remoteServer{script: func(s slowWriter) {
			for range slices {
				for n := range maxSliceObjects {
					s.write(podFrame("ADDED", fmt.Sprint(n), 6))
				}
				sent = append(sent, time.Since(start).Round(time.Minute))
			}
			s.write(endFrame(10))
			s.wait(time.Hour)
		}}.source(t)
		revision, w, err := s.StreamList(t.Context(), 0, func([]keepwatch.Object) error {
			time.Sleep(time.Minute)
			emitted = append(emitted, time.Since(start).Round(time.Minute))
			return nil
		})
		if err != nil || revision != 10 {
			t.Fatal(revision, err)
		}
		w.Close()
		if got, want := fmt.Sprint(sent, emitted), "[0s 0s 1m0s 2m0s] [1m0s 2m0s 3m0s 4m0s]"; got != want {
			t.Errorf("sent and emitted after %s, want %s", got, want)
		}
	})
}

func TestStreamListEmitFails(t *testing.T) {
	full := errors.New("disk full")
	for _, frames := range [][]string{
		{podFrame("ADDED", "a", 6), endFrame(10)},
		{podFrame("ADDED", "a", 6), podFrame("DELETED", "a", 7), endFrame(10)},
	} {
		s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) { send(w, frames...) }),
			Options{})
		_, w, err := s.StreamList(t.Context(), 0, func([]keepwatch.Object) error { return full })
		if err != full || w != nil {
			t.Errorf("got %v, %v; want %v as it is", w, err, full)
		}
	}
}

// A panic of emit is one of StreamList's goroutine.
func TestStreamListEmitPanics(t *testing.T) {
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		send(w, podFrame("ADDED", "a", 6), endFrame(10))
	}), Options{})
	defer func() {
		if p := recover(); p != "full" {
			t.Errorf("the panic is %v", p)
		}
	}()
	_, _, err := s.StreamList(t.Context(), 0, func([]keepwatch.Object) error { panic("full") })
	t.Errorf("no panic, but %v", err)
}
