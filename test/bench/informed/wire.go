package main

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wire is between clients and the server: it counts lists, and can let history
// expire.
type wire struct {
	mu      sync.Mutex
	lists   int // of the whole state, in pages or as a stream
	probes  int // lists of one object
	watches map[*watchBody]struct{}
	expired bool // for the next watch
	settled int  // lists that are complete: a watch follows, or the stream has sent its end
	tooOld  int  // watches that the server refused because their history expired
}

func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) { return w.roundTrip(next, r) })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

const expired = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}`

func (w *wire) roundTrip(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	watch, stream := q.Get("watch") == "true" || q.Get("watch") == "1", q.Get("sendInitialEvents") == "true"
	w.mu.Lock()
	switch {
	case strings.Contains(r.URL.Path, "/pods") && watch && !stream:
		if w.expired {
			w.expired = false
			w.mu.Unlock()
			return &http.Response{
				StatusCode: http.StatusGone, Status: "410 Gone", Proto: "HTTP/2.0", ProtoMajor: 2, Request: r,
				Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(expired)),
			}, nil
		}
		w.settled++
	case !strings.Contains(r.URL.Path, "/pods"):
	case q.Get("limit") == "1":
		w.probes++
	case q.Get("continue") == "":
		w.lists++
	}
	w.mu.Unlock()
	resp, err := next.RoundTrip(r)
	if err == nil && watch && resp.StatusCode == http.StatusOK {
		resp.Body = w.watchBody(resp.Body)
	}
	return resp, err
}

// watched is the body of a watch.
type watchBody struct {
	io.ReadCloser
	wire *wire
	tail []byte // the end of the text that was read
	mu   sync.Mutex
	cut  bool
}

func (w *wire) watchBody(body io.ReadCloser) *watchBody {
	b := &watchBody{ReadCloser: body, wire: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watches == nil {
		w.watches = map[*watchBody]struct{}{}
	}
	w.watches[b] = struct{}{}
	return b
}

func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.parseLine(p[:n])
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cut && err != nil {
		err = io.EOF
	}
	return n, err
}

var (
	end    = []byte(metav1.InitialEventsAnnotationKey)
	tooOld = []byte("too old resource version")
)

// parseLine searches for the end of a streaming list, and for an expired history.
func (b *watchBody) parseLine(p []byte) {
	text := append(b.tail, p...)
	ends, gone := bytes.Contains(text, end), bytes.Contains(text, tooOld)
	if ends || gone {
		b.wire.mu.Lock()
		if ends {
			b.wire.settled++
		} else {
			b.wire.tooOld++
		}
		b.wire.mu.Unlock()
		text = nil
	}
	b.tail = append(b.tail[:0], text[max(0, len(text)-len(end)+1):]...)
}

func (b *watchBody) Close() error {
	b.wire.mu.Lock()
	delete(b.wire.watches, b)
	b.wire.mu.Unlock()
	return b.ReadCloser.Close()
}

// expire ends the watches, and answers the next one with an expired history.
func (w *wire) expire() {
	w.mu.Lock()
	w.expired = true
	var open []*watchBody
	for b := range w.watches {
		open = append(open, b)
	}
	w.mu.Unlock()
	for _, b := range open {
		b.mu.Lock()
		b.cut = true
		b.mu.Unlock()
		_ = b.ReadCloser.Close()
	}
}
