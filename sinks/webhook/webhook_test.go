package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	protocol "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/webhook"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// events returns the events of a request, in any mode.
func events(t *testing.T, r *http.Request, body []byte) []event.Event {
	t.Helper()
	r.Body = io.NopCloser(bytes.NewReader(body))
	if protocol.IsHTTPBatch(r.Header) {
		all, err := protocol.NewEventsFromHTTPRequest(r)
		if err != nil {
			t.Error(err)
		}
		return all
	}
	e, err := protocol.NewEventFromHTTPRequest(r)
	if err != nil {
		t.Error(err)
		return nil
	}
	return []event.Event{*e}
}

// thing is an object with a body.
type thing struct {
	name     string
	revision keepwatch.Revision
}

func (o thing) Key() keepwatch.Key           { return keepwatch.Key{Namespace: "shop", Name: o.name} }
func (o thing) UID() keepwatch.UID           { return keepwatch.UID("uid-" + o.name) }
func (o thing) Revision() keepwatch.Revision { return o.revision }
func (o thing) Metadata() []byte             { return o.JSON() }

func (o thing) JSON() []byte {
	text, err := json.Marshal(map[string]string{"name": o.name})
	if err != nil {
		panic(err) // a string
	}
	return text
}

var pods = []sink.Stream{{ID: stream.Identity{Resource: "pods", Cluster: stream.Cluster{UID: "c1"}}}}

// batch returns a batch with an event for each name, and a gap and a synced point.
func batch(names ...string) sink.Batch {
	p := sink.Piece{After: sink.Progress{Cursor: 9, Since: 9}}
	p.Messages = append(p.Messages, stream.Gap{From: 3, To: 9, Reason: keepwatch.GapExpired})
	for _, name := range names {
		c := keepwatch.Change{Type: keepwatch.Modified, Revision: 7, Object: thing{name, 7}}
		p.Messages = append(p.Messages, stream.Event{Type: c.Type, Revision: c.Revision, ID: c.ID(), Object: thing{name, 7}})
	}
	p.Messages = append(p.Messages, stream.Synced{Revision: 9, Count: 5})
	return sink.Batch{Time: time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC), Pieces: []sink.Piece{p}}
}

func open(t *testing.T, address string, o webhook.Options) *webhook.Receiver {
	t.Helper()
	if o.DeadLetters == "" {
		o.DeadLetters = filepath.Join(t.TempDir(), "dead")
	}
	r, err := webhook.New(address, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Open(t.Context(), pods, sink.Delivered{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// TestModes sends a batch to a real server in each mode.
func TestModes(t *testing.T) {
	for mode, requests := range map[webhook.Mode]int{webhook.Structured: 3, webhook.Binary: 3, webhook.Batched: 1} {
		var got []event.Event
		n := 0
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			n++
			if user, password, _ := r.BasicAuth(); user != "u" || password != "secret" {
				t.Errorf("the user is %q, %q", user, password)
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			got = append(got, events(t, r, body)...)
		}))
		r := open(t, strings.Replace(s.URL, "//", "//u:secret@", 1)+"/in?key=secret", webhook.Options{Mode: mode})
		if err := r.Write(t.Context(), batch("a")); err != nil {
			t.Fatal(err)
		}
		s.Close()
		if strings.Contains(r.String(), "secret") || !strings.HasSuffix(r.String(), "/in") {
			t.Error(r)
		}
		if n != requests || len(got) != 3 {
			t.Fatalf("%d requests, %d events", n, len(got))
		}
		want := []string{"gap/0/3-9 io.keepwatch.gap", "uid-a/7 io.keepwatch.modified", "synced/0/9 io.keepwatch.synced"}
		for i, e := range got {
			if id := e.ID() + " " + e.Type(); id != want[i] || e.Source() != "/clusters/c1/pods" || e.SpecVersion() != "1.0" ||
				e.DataContentType() != "application/json" {
				t.Errorf("mode %v: %v, want %s", mode, e, want[i])
			}
		}
		if e := got[1]; e.Subject() != "shop/a" ||
			string(e.Data()) != `{"type":"MODIFIED","revision":"7","id":"uid-a/7","resource":"pods","object":{"name":"a"}}` ||
			fmt.Sprint(e.Extensions()["revision"]) != "7" {
			t.Errorf("mode %v: %v, %s", mode, e, e.Data())
		}
	}
}

// TestEnd checks the answers that are the end, whose message has no password.
func TestEnd(t *testing.T) {
	for status, want := range map[int]string{
		410: `answers 410 Gone: "go away": it wants no more events`,
		415: "it wants another mode of CloudEvents",
		302: "redirects are not followed",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/other")
			w.WriteHeader(status)
			fmt.Fprintln(w, "go away")
		}))
		r := open(t, strings.Replace(s.URL, "//", "//u:secret@", 1), webhook.Options{})
		err := r.Write(t.Context(), batch("a"))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") ||
			errors.As(err, new(*sink.Unavailable)) {
			t.Errorf("%d: %v", status, err)
		}
		s.Close()
	}
	for _, address := range []string{"ftp://u:secret@h", "http://", "https://u:secret@h:x/", "nonsense"} {
		if _, err := webhook.New(address, webhook.Options{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := webhook.ParseMode("bulk"); err == nil || !strings.Contains(err.Error(), "structured, binary or batched") {
		t.Error(err)
	}
}

// TestDeadLetters refuses one event of a batch, and a batch that is too large.
func TestDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		refuses := func(string) bool { return false }
		transport := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			all := events(t, r, body)
			if len(all) > 3 {
				w.WriteHeader(413)
				return
			}
			if slices.ContainsFunc(all, func(e event.Event) bool { return refuses(e.Subject()) }) {
				w.WriteHeader(422)
				fmt.Fprint(w, "no b")
				return
			}
			for _, e := range all {
				got = append(got, e.ID())
			}
		}))
		file := filepath.Join(t.TempDir(), "dead")
		reports := 0
		r := open(t, "http://receiver", webhook.Options{Mode: webhook.Batched, Transport: transport, DeadLetters: file,
			Refused: func(err error) {
				if reports++; !strings.Contains(err.Error(),
					`refuses event uid-b/7 of "shop/b" with 422 Unprocessable Entity: "no b"`) {
					t.Error(err)
				}
			}})
		refuses = func(subject string) bool { return subject == "shop/b" }
		if err := r.Write(t.Context(), batch("a", "b", "c", "d", "e", "f")); err != nil {
			t.Fatal(err)
		}
		want := []string{"gap/0/3-9", "uid-a/7", "uid-c/7", "uid-d/7", "uid-e/7", "uid-f/7", "synced/0/9"}
		if !slices.Equal(got, want) || reports != 1 {
			t.Errorf("got %q, %d reports", got, reports)
		}
		text, err := os.ReadFile(file)
		var letter struct {
			Status int
			Answer string
			Event  event.Event
		}
		if err = errors.Join(err, json.Unmarshal(text, &letter)); err != nil || letter.Status != 422 ||
			letter.Answer != "no b" || letter.Event.ID() != "uid-b/7" || bytes.Count(text, []byte("\n")) != 1 {
			t.Errorf("%s, %v", text, err)
		}
	})
}

// TestRefusesAll ends after a bounded number of dead letters, and adds none after a restart, until the receiver accepts
// an event, or the dead letters were moved away.
func TestRefusesAll(t *testing.T) {
	status := 400
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer s.Close()
	file := filepath.Join(t.TempDir(), "dead")
	names := make([]string, 150)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	ends := func(dead int) {
		t.Helper()
		err := open(t, s.URL, webhook.Options{DeadLetters: file}).Write(t.Context(), batch(names...))
		if err == nil ||
			!strings.Contains(err.Error(), "has refused 100 events one after the other, and this one with 400 Bad Request") {
			t.Error(err)
		}
		text, err := os.ReadFile(file)
		if n := bytes.Count(text, []byte("\n")); err != nil || n != dead {
			t.Errorf("%d dead letters, want %d; %v", n, dead, err)
		}
	}
	// few are below the bound, and count in the next process
	if err := open(t, s.URL, webhook.Options{DeadLetters: file}).Write(t.Context(), batch("a")); err != nil {
		t.Error(err)
	}
	for range 3 {
		ends(100)
	}
	status = 200
	if err := open(t, s.URL, webhook.Options{DeadLetters: file}).Write(t.Context(), batch("a")); err != nil {
		t.Error(err)
	}
	status = 400
	for range 2 {
		ends(200)
	}
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	ends(100)
}

// TestRoutes repairs credentials and routes: no event is a dead letter meanwhile.
func TestRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, status := range []int{401, 403, 404, 405, 407, 421} {
			answers := 0
			transport := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if answers++; answers <= 5 {
					w.WriteHeader(status)
				}
			}))
			r := open(t, "http://receiver", webhook.Options{Mode: webhook.Batched, Transport: transport, Refused: func(err error) {
				t.Error(err)
			}})
			if err := r.Write(t.Context(), batch("a")); err != nil || answers != 6 {
				t.Errorf("%d: %d requests, %v", status, answers, err)
			}
		}
	})
}

// TestWaits checks the waits between attempts, and that the end of the context ends them.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []string{"429 7", "503 99999999", "401 nonsense", "500 -1", "200"}
		transport := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			var status int
			after := ""
			fmt.Sscan(answers[0], &status, &after)
			w.Header().Set("Retry-After", after)
			w.WriteHeader(status)
			answers = answers[1:]
		}))
		var waits []time.Duration
		r := open(t, "http://receiver", webhook.Options{Mode: webhook.Batched, Transport: transport, Retrying: func(_ error,
			wait time.Duration) {
			waits = append(waits, wait)
		}})
		if err := r.Write(t.Context(), batch("a")); err != nil {
			t.Fatal(err)
		}
		if len(waits) != 4 || waits[0] != 7*time.Second || waits[1] != time.Hour || waits[2] > 2*time.Second ||
			waits[3] > 4*time.Second {
			t.Errorf("the waits are %v", waits)
		}
		answers = slices.Repeat([]string{"500"}, 1000)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Minute, errors.New("stopped"))
		defer cancel()
		if err := r.Write(ctx, batch("a")); err == nil || err.Error() != "stopped" {
			t.Error(err)
		}
		if n := 1000 - len(answers); n < 6 || n > 300 {
			t.Errorf("%d requests in 5 minutes", n)
		}
	})
}

// TestNames sends objects whose names are any text in binary mode, whose attributes are headers. With a signature the
// id is in a header that has no encoding: that event is a dead letter, and the others are sent.
func TestNames(t *testing.T) {
	names := []string{"a b", "line\nbreak", "nul\x00", "\x7f", `"%41"`, "ünï☃", strings.Repeat("long", 10000)}
	synctest.Test(t, func(t *testing.T) {
		for _, key := range [][]byte{nil, []byte("0123456789abcdef01234567")} {
			var got []string
			transport := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				subject, err := url.PathUnescape(r.Header.Get("Ce-Subject"))
				if err != nil || strings.ContainsAny(r.Header.Get("Ce-Subject"), ` "☃ü`) {
					t.Errorf("%q, %v", r.Header.Get("Ce-Subject"), err)
				}
				if subject != "" {
					got = append(got, strings.TrimPrefix(subject, "shop/"))
				}
			}))
			want := slices.Clone(names)
			dead := 0
			if len(key) > 0 {
				want = []string{names[0], names[4], names[5], names[6]}
			}
			r := open(t, "http://receiver", webhook.Options{Mode: webhook.Binary, Key: key, Transport: transport,
				Refused: func(err error) {
					if dead++; !strings.Contains(err.Error(), `of "shop/`) ||
						!strings.Contains(err.Error(), "cannot be sent: the header Webhook-Id has a control character") {
						t.Error(err)
					}
				}})
			if err := r.Write(t.Context(), batch(names...)); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) || dead != len(names)-len(want) {
				t.Errorf("key %q: %.100q, want %.100q; %d dead letters", key, got, want, dead)
			}
		}
	})
}

// TestPasswordInClear refuses an address whose password would be sent without encryption to another machine.
func TestPasswordInClear(t *testing.T) {
	for address, accepted := range map[string]bool{
		"http://u:pa55word@events.example.com/": false, "https://u:pa55word@events.example.com/": true,
		"http://u:pa55word@127.0.0.1:80/": true,
		"http://u:pa55word@[::1]/":        true, "http://u:pa55word@localhost/": true, "http://events.example.com/": true,
	} {
		if _, err := webhook.New(address, webhook.Options{}); (err == nil) != accepted || err != nil &&
			strings.Contains(err.Error(), "pa55word") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
