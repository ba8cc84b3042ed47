package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
)

// open opens a watch from revision 5, and closes it when the test ends.
func open(t *testing.T, s *Source) keepwatch.Watch {
	t.Helper()
	w, err := s.Watch(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func TestWatch(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		send(w, podFrame("ADDED", "a", 6), podFrame("MODIFIED", "a", 7))
		send(w, podFrame("DELETED", "a", 9)[:30]) // frames are independent of chunks
		send(w, podFrame("DELETED", "a", 9)[30:], bookmarkFrame(20))
	}
	overEach(t, answer, Options{}, func(t *testing.T, s *Source) {
		w := open(t, s)
		batches, err := drain(w)
		wantFailure(t, err, keepwatch.Ended, "watch pods: the server ended the stream")
		wantHistory(t, batches, 5, 20, "ADDED a@6", "MODIFIED a@7", "DELETED a@9")
		for _, b := range batches {
			for _, c := range b.Changes {
				if c.Prior != nil || c.Object.UID() != "uid-a" || c.Object.Revision() != c.Revision {
					t.Errorf("change %+v", c)
				}
			}
		}
		if _, again := w.Next(); again != err {
			t.Errorf("after the end: %v", again)
		}
	})
}

func TestWatchRequest(t *testing.T) {
	var seen requestLog
	cfg := serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		seen.record(r)
		send(w)
	})
	opts := Options{LabelSelector: "a=b", FieldSelector: "metadata.name=x"}
	for _, opts.Representation = range []Representation{WholeObjects, TableRows, MetadataOnly} {
		drain(open(t, newSource(t, cfg, opts)))
		r := seen.drain()[0]
		q := r.URL.Query()
		var timeout int
		fmt.Sscan(q.Get("timeoutSeconds"), &timeout)
		if timeout < 300 || timeout > 600 {
			t.Errorf("timeoutSeconds=%d", timeout)
		}
		q.Del("timeoutSeconds")
		want := "allowWatchBookmarks=true&fieldSelector=metadata.name%3Dx&labelSelector=a%3Db&resourceVersion=5&watch=true"
		if opts.Representation == TableRows {
			want = "allowWatchBookmarks=true&fieldSelector=metadata.name%3Dx&includeObject=Metadata&labelSelector=a%3Db&resourceVersion=5&watch=true"
		}
		if got := q.Encode(); got != want {
			t.Errorf("requested %s\nwant %s", got, want)
		}
		accept := []string{
			"application/json",
			"application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
			"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
		}[opts.Representation]
		if got := r.Header.Get("Accept"); got != accept {
			t.Errorf("accepts %q, want %q", got, accept)
		}
	}
}

// An invalid frame ends the watch, after the batches that precede it.
func TestWatchInvalid(t *testing.T) {
	object := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","resourceVersion":%s}}`
	for name, test := range map[string]struct {
		frame string
		kind  keepwatch.FailureKind
		want  string
	}{
		"unknown type":     {podFrame("PATCHED", "b", 8), keepwatch.ProtocolViolation, `unknown event type "PATCHED"`},
		"no type":          {`{"object":{}}`, keepwatch.ProtocolViolation, `unknown event type ""`},
		"type is no text":  {`{"type":1,"object":{}}`, keepwatch.ProtocolViolation, `unknown event type ""`},
		"no object":        {`{"type":"ADDED"}`, keepwatch.ProtocolViolation, "no name"},
		"object is null":   {`{"type":"ADDED","object":null}`, keepwatch.ProtocolViolation, "no name"},
		"object is a list": {`{"type":"ADDED","object":[]}`, keepwatch.ProtocolViolation, "no name"},
		"no revision": {`{"type":"ADDED","object":{"metadata":{"name":"b"}}}`, keepwatch.ProtocolViolation,
			`object b: resource version ""`},
		"revision is a number": {`{"type":"ADDED","object":` + fmt.Sprintf(object, `8`) + `}`, keepwatch.ProtocolViolation,
			`version ""`},
		"revision is no digit": {`{"type":"ADDED","object":` + fmt.Sprintf(object, `"8x"`) + `}`, keepwatch.ProtocolViolation,
			`"8x"`},
		"bookmark: none": {`{"type":"BOOKMARK","object":{"metadata":{}}}`, keepwatch.ProtocolViolation,
			`a bookmark's resource version ""`},
		"bookmark: no object": {`{"type":"BOOKMARK"}`, keepwatch.ProtocolViolation, `a bookmark's resource version ""`},
		"bookmark below":      {bookmarkFrame(6), keepwatch.ProtocolViolation, "a bookmark at revision 6, below 7"},
		"bookmark: zero":      {bookmarkFrame(0), keepwatch.ProtocolViolation, `"0"`},
		"truncated":           {podFrame("ADDED", "b", 8)[:40], keepwatch.Undecodable, "EOF"},
		"garbage":             {"<html>", keepwatch.Undecodable, "'<'"},
		"garbage in a frame": {`{"type":"ADDED","object":{"metadata":{"name":"b",]}}`, keepwatch.Undecodable,
			"invalid character ','"},
		"no JSON object":      {`"ADDED"`, keepwatch.Undecodable, "not a JSON object"},
		"not UTF-8":           {"{\"type\":\"ADDED\",\"object\":{\"x\":\"\xff\"}}", keepwatch.Undecodable, "UTF-8"},
		"too long":            {podFrame("ADDED", strings.Repeat("x", 9999), 8), keepwatch.Undecodable, "too long"},
		"endless white space": {strings.Repeat(" ", 9999), keepwatch.Undecodable, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
				send(w, podFrame("ADDED", "a", 7), test.frame)
				if test.want != "EOF" {
					send(w, podFrame("ADDED", "c", 9))
				}
			}), Options{MaxObject: 4000})
			batches, err := drain(open(t, s))
			wantFailure(t, err, test.kind, "watch pods: ", test.want)
			wantHistory(t, batches, 5, 7, "ADDED a@7")
		})
	}
}

// Members of a frame may have any order, with white space and unknown members between
// them.
func TestWatchFrameShapes(t *testing.T) {
	object := `{"metadata":{"resourceVersion":"7","name":"a"},"kind":"Pod","apiVersion":"v1"}`
	for _, frame := range []string{
		`{"object":` + object + `,"type":"ADDED"}`,
		"\n\t{ \"type\" : \"ADDED\" , \"more\": {\"object\":1}, \"object\" :\n" + object + "\n}\r\n",
		`{"type":"ADDED","object":` + object + `}{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}`,
	} {
		s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) { send(w, frame) }), Options{})
		batches, err := drain(open(t, s))
		wantFailure(t, err, keepwatch.Ended)
		wantHistory(t, batches, 5, 7, "ADDED a@7")
		if got := string(batches[0].Changes[0].Object.(*Object).JSON()); got != object {
			t.Errorf("got %s\nwant %s", got, object)
		}
	}
}

// A repeated event begins a batch, so that a target can detect it. A bookmark ends one.
func TestWatchOrder(t *testing.T) {
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		send(w, podFrame("ADDED", "a", 7), podFrame("ADDED", "b", 8), podFrame("ADDED", "a", 7), podFrame("MODIFIED", "b", 9),
			bookmarkFrame(12), podFrame("ADDED", "c", 11), bookmarkFrame(12), podFrame("ADDED", "d", 12), podFrame("ADDED", "e",
				13))
	}), Options{})
	batches, err := drain(open(t, s))
	wantFailure(t, err, keepwatch.Ended)
	wantHistory(t, batches, 5, 13, "ADDED a@7", "ADDED b@8", "ADDED a@7", "MODIFIED b@9", "ADDED c@11", "ADDED d@12",
		"ADDED e@13")
	for _, b := range batches {
		for i, c := range b.Changes {
			old := c.Object.Key().Name == "a" && b.From >= 8 || c.Object.Key().Name == "c" || c.Object.Key().Name == "d"
			if old != (c.Revision <= b.From) || old && i > 0 {
				t.Errorf("%s: change %d", describe(b), i)
			}
		}
	}
}

// A slow consumer receives bounded batches, and no change is lost.
func TestWatchBounds(t *testing.T) {
	const events = 5000
	for name, padding := range map[string]int{"many small": 0, "few long": 100_000} {
		t.Run(name, func(t *testing.T) {
			events := events / (1 + padding/1000)
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
				for i := range events {
					send(w, strings.Replace(podFrame("ADDED", fmt.Sprint(i), 6+i), `"spec":{}`, `"x":"`+strings.Repeat("x", padding)+
						`"`, 1))
				}
			}), Options{})
			w := open(t, s)
			at, count := keepwatch.Revision(5), 0
			for {
				b, err := w.Next()
				if err != nil {
					wantFailure(t, err, keepwatch.Ended)
					break
				}
				size := 0
				for _, c := range b.Changes {
					size += len(c.Object.(*Object).JSON())
				}
				if b.From != at || len(b.Changes) > maxBatchEvents || size > DefaultBatchBytes {
					t.Fatalf("batch (%v,%v] of %d events, %d bytes behind %v", b.From, b.To, len(b.Changes), size, at)
				}
				at, count = b.To, count+len(b.Changes)
			}
			if count != events || at != keepwatch.Revision(5+events) {
				t.Errorf("%d events up to %v", count, at)
			}
		})
	}
}

// One event may be longer than a batch.
func TestWatchLongEvent(t *testing.T) {
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		send(w, strings.Replace(podFrame("ADDED", "a", 6), `"spec":{}`, `"x":"`+strings.Repeat("x", 2*DefaultBatchBytes)+`"`,
			1), podFrame("ADDED", "b", 7))
	}), Options{})
	batches, err := drain(open(t, s))
	wantFailure(t, err, keepwatch.Ended)
	wantHistory(t, batches, 5, 7, "ADDED a@6", "ADDED b@7")
	if len(batches) != 2 {
		t.Errorf("%d batches", len(batches))
	}
}

func TestWatchInterrupted(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		send(w, podFrame("ADDED", "a", 6), podFrame("ADDED", "b", 7)[:50])
		abortResponse()
	}
	overEach(t, answer, Options{}, func(t *testing.T, s *Source) {
		batches, err := drain(open(t, s))
		wantFailure(t, err, keepwatch.Unreachable, "watch pods: ")
		wantHistory(t, batches, 5, 6, "ADDED a@6")
	})
}

// Invalid text is Undecodable although the connection fails after it.
func TestWatchGarbageThenInterrupted(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		send(w, podFrame("ADDED", "a", 6), "<html>")
		abortResponse()
	}
	overEach(t, answer, Options{}, func(t *testing.T, s *Source) {
		batches, err := drain(open(t, s))
		wantFailure(t, err, keepwatch.Undecodable, "watch pods: unreadable response: ", "'<'")
		wantHistory(t, batches, 5, 6, "ADDED a@6")
	})
}

func TestWatchCancel(t *testing.T) {
	overEach(t, func(w http.ResponseWriter, r *http.Request) {
		send(w)
		waitClosed(r)
	}, Options{}, func(t *testing.T, s *Source) {
		ctx, cancel := context.WithCancelCause(t.Context())
		w, err := s.Watch(ctx, 5)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		stopped := errors.New("asked to end")
		cancel(stopped)
		_, err = w.Next()
		wantFailure(t, err, keepwatch.Unreachable, "watch pods: asked to end: context canceled")
		if !errors.Is(err, context.Canceled) || !errors.Is(err, stopped) {
			t.Errorf("%v does not wrap the context's error and cause", err)
		}
	})
}

func TestWatchClose(t *testing.T) {
	overEach(t, func(w http.ResponseWriter, r *http.Request) {
		send(w)
		waitClosed(r)
	}, Options{}, func(t *testing.T, s *Source) {
		w := open(t, s)
		next := make(chan error)
		go func() {
			_, err := w.Next()
			next <- err
		}()
		for range 2 {
			go w.Close()
		}
		w.Close()
		wantFailure(t, <-next, keepwatch.Ended, "watch pods: closed")
		w.(*watch).tasks.Wait()
	})
}

// Close ends a reader that waits for the consumer.
func TestWatchCloseFull(t *testing.T) {
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		send(w, bookmarkFrame(6), bookmarkFrame(7))
		waitClosed(r)
	}), Options{})
	w := open(t, s)
	if b, err := w.Next(); err != nil || !b.Bookmark() || b.To != 6 {
		t.Fatalf("got %v, %v", b, err)
	}
	w.Close()
}

func TestWatchWithoutRevision(t *testing.T) {
	s := newSource(t, serve(t, "HTTP/1.1", func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") }),
		Options{})
	_, err := s.Watch(t.Context(), 0)
	wantFailure(t, err, keepwatch.InvariantViolation, "watch pods: no revision")
}
