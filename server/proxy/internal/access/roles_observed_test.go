package access

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// quietServer answers lists and watches: there is no object, and nothing changes.
type quietServer struct {
	failure atomic.Int32  // the code that it answers everything with; zero for none
	unready atomic.Bool   // it says so, whatever it answers else
	newest  atomic.Int32  // the revision of its lists; 7 if it is zero
	ended   chan struct{} // its watches end when it is closed
}

// fail makes the server end its watches, and answer with a code.
func (s *quietServer) fail(code int32) {
	s.failure.Store(code)
	close(s.ended)
}

// recover ends that.
func (s *quietServer) recover() {
	s.ended = make(chan struct{})
	s.failure.Store(0)
}

func (s *quietServer) RoundTrip(q *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Request: q}
	text := func(code int, body string) (*http.Response, error) {
		answer.StatusCode, answer.Body = code, io.NopCloser(strings.NewReader(body))
		return answer, nil
	}
	values, failure := q.URL.Query(), int(s.failure.Load())
	switch {
	case q.URL.Path == probePath && s.unready.Load():
		return text(http.StatusInternalServerError, "")
	case q.URL.Path == probePath:
		return text(http.StatusOK, "ok")
	case failure != 0:
		return text(failure, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","reason":%q,"code":%d}`,
			strings.ReplaceAll(http.StatusText(failure), " ", ""), failure))
	case values.Has("sendInitialEvents"):
		return text(http.StatusUnprocessableEntity, `{"kind":"Status","apiVersion":"v1","reason":"Invalid","code":422}`)
	case !values.Has("watch"):
		return text(http.StatusOK, fmt.Sprintf(
			`{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[]}`, cmp.Or(s.newest.Load(), 7)))
	}
	body, end := io.Pipe()
	go func() {
		select {
		case <-s.ended:
		case <-q.Context().Done():
		}
		end.Close()
	}()
	answer.Body = body
	return answer, nil
}

// Changes are seen from the moment on in which all roles are watched, also after an outage, although nothing changes
// and so nothing is delivered. Then all personal views are decided again: a change may have been undone unseen.
func TestQuietRolesAreObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &quietServer{ended: make(chan struct{})}
		p := &permissions{scopes: newScopes()}
		r, err := newRoles(&rest.Config{Host: "http://server", Transport: server, QPS: -1}, p, true)
		if err != nil {
			t.Fatal(err)
		}
		var anybody, unseen atomic.Int64
		r.unseen = func() { unseen.Add(1) }
		r.touched = func(_ map[string]bool, ok bool) {
			if !ok {
				anybody.Add(1)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { defer close(stopped); r.run(ctx) }()
		defer func() { cancel(); <-stopped }()
		is := func(want bool, what string) {
			t.Helper()
			if synctest.Wait(); p.isObserved() != want {
				t.Errorf("%s: changes are seen: %v", what, !want)
			}
		}
		time.Sleep(time.Minute)
		is(true, "after a minute")
		server.fail(http.StatusServiceUnavailable)
		time.Sleep(time.Minute)
		is(false, "in the outage")
		if n := unseen.Load(); n != 1 {
			t.Errorf("personal views learn %d times that changes are not seen", n)
		}
		before := anybody.Load()
		server.recover()
		time.Sleep(time.Minute)
		is(true, "a minute after it")
		if anybody.Load() == before {
			t.Error("personal views are not decided again after the outage")
		}
	})
}

// What an API server had that was restored from a backup does not count after the outage: it accepts a watch from a
// revision that it has not reached, and sends nothing.
func TestRestoredServerIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &quietServer{ended: make(chan struct{})}
		server.newest.Store(1000)
		p := &permissions{scopes: newScopes(), probe: &Probe{}}
		config := &rest.Config{Host: "http://server", Transport: server, QPS: -1}
		r, err := newRoles(config, p, true)
		if err != nil {
			t.Fatal(err)
		}
		n, err := newNamespaces(config, p)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go r.run(ctx)
		go n.run(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		server.fail(http.StatusServiceUnavailable)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		server.newest.Store(7)
		server.recover()
		time.Sleep(time.Minute)
		if !p.isObserved() {
			t.Error("roles are not followed")
		}
		for i, of := range append(r.stores, n.store) {
			if at := of.Snapshot().Revision(); at != 7 {
				t.Errorf("store %d is at revision %d, which the server does not have", i, at)
			}
		}
	})
}
