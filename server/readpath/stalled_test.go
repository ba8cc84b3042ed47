package readpath

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// stalledClients is a TLS server in front of a rig, and clients that don't read.
type stalledClients struct {
	*rig
	budget   *Budget
	server   *httptest.Server
	begun    atomic.Int64  // requests that have reached the server
	ended    atomic.Int64  // of these
	answered atomic.Int64  // requests of start whose response has begun
	timeout  time.Duration // of requests; zero for none
	mayEnd   bool          // the server may end requests of start before their response begins. Set it before start
	cancel   func()        // ends the contexts of all requests
}

// protocols are those of an API server's clients.
var protocols = []string{"HTTP/1.1", "HTTP/2.0"}

// newStalledClients returns a server whose list does not fit into the buffers of a connection.
func newStalledClients(t *testing.T) *stalledClients {
	budget := NewBudget(1 << 30)
	s := &stalledClients{rig: newRig(t, pods, options{budget: budget}), budget: budget}
	big := withNote(string(bytes.Repeat([]byte("0123456789abcdef"), 16<<10)))
	for i := range 64 { // 16 MB
		s.create("default", fmt.Sprint("o", i), big)
	}
	all, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	s.server = httptest.NewUnstartedServer(WithWriteDeadline(http.HandlerFunc(func(w http.ResponseWriter,
		q *http.Request) {
		s.begun.Add(1)
		defer s.ended.Add(1)
		q = s.withInfo(q)
		ctx, end := context.WithCancel(request.WithUser(q.Context(), &user.DefaultInfo{Name: q.Header.Get("User")}))
		defer end()
		defer context.AfterFunc(all, end)()
		if s.timeout > 0 {
			within, cancel := context.WithTimeout(ctx, s.timeout)
			defer cancel()
			ctx = within
		}
		s.handler.ServeHTTP(w, q.WithContext(ctx))
	})))
	s.server.EnableHTTP2 = true
	s.server.StartTLS()
	t.Cleanup(s.server.Close)
	return s
}

// client returns a client with connections of its own.
func (s *stalledClients) client(protocol string) *http.Client {
	use := &http.Protocols{}
	use.SetHTTP1(protocol == "HTTP/1.1")
	use.SetHTTP2(protocol == "HTTP/2.0")
	transport := s.server.Client().Transport.(*http.Transport).Clone()
	transport.Protocols, transport.DisableCompression = use, true
	transport.TLSClientConfig.NextProtos = nil // the server's
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// start sends requests of one user and does not read the responses. stop ends the requests.
func (s *stalledClients) start(protocol, user, query string, n int) (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	client := s.client(protocol)
	var clients sync.WaitGroup
	for range n {
		clients.Go(func() {
			answer, err := client.Do(s.request(ctx, user, query))
			switch {
			case err == nil:
				s.answered.Add(1)
				<-ctx.Done()
				answer.Body.Close()
			case ctx.Err() == nil && !s.mayEnd:
				s.t.Errorf("%s: %v", protocol, err)
			}
		})
	}
	s.t.Cleanup(func() { cancel(); clients.Wait() })
	return cancel
}

// waitForEnd waits until n requests have reached the server and all of them have ended.
func (s *stalledClients) waitForEnd(n int64) {
	s.t.Helper()
	end := time.Now().Add(await.Deadline)
	for begun, ended := s.begun.Load(), s.ended.Load(); begun != n || ended != n; begun, ended = s.begun.Load(),
		s.ended.Load() {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			s.t.Fatalf("of %d requests %d have begun and %d have ended:\n%s", n, begun, ended,
				stacks[:runtime.Stack(stacks, true)])
		}
		<-time.After(time.Millisecond)
	}
}

func (s *stalledClients) request(ctx context.Context, user, query string) *http.Request {
	q := must(http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+s.path("")+query, nil))(s.t)
	q.Header = accept("application/json", "User", user)
	return q
}

// Lists that one user does not read do not block other users, with either protocol.
func TestStalledListsDoNotBlockOtherUsers(t *testing.T) {
	t.Parallel()
	s := newStalledClients(t)
	for _, protocol := range protocols {
		s.budget.lists = newAdmission(4 * listBufferSize)
		before := s.ended.Load()
		stop := s.start(protocol, "a", "", 10)
		await.True(t, "one user's lists have reserved half and wait", func() bool {
			s.budget.lists.mu.Lock()
			defer s.budget.lists.mu.Unlock()
			return s.budget.lists.free == 2*listBufferSize && s.budget.lists.waiting > 0 && s.begun.Load() == before+10
		})
		for range 3 {
			answer := must(s.client(protocol).Do(s.request(t.Context(), "b", "")))(t)
			body := must(io.ReadAll(answer.Body))(t)
			if answer.StatusCode != http.StatusOK || answer.Proto != protocol || len(body) < 16<<20 {
				t.Errorf("%s: another user gets %s %s, %d bytes", protocol, answer.Proto, answer.Status, len(body))
			}
		}
		stop()
		s.waitForEnd(before + 13)
		if n := s.budget.lists.inUse(); n != 0 {
			t.Errorf("%s: %d bytes are reserved", protocol, n)
		}
	}
}

// Lists that the service accounts of one namespace do not read do not block other users.
func TestServiceAccountsOfANamespaceShare(t *testing.T) {
	t.Parallel()
	s := newStalledClients(t)
	s.budget.lists = newAdmission(4 * listBufferSize)
	for i := range 6 {
		s.start("HTTP/2.0", fmt.Sprint("system:serviceaccount:ns:", i), "", 2)
	}
	await.True(t, "they have reserved half and wait", func() bool {
		s.budget.lists.mu.Lock()
		defer s.budget.lists.mu.Unlock()
		return s.budget.lists.free == 2*listBufferSize && s.budget.lists.waiting == 10
	})
	for _, user := range []string{"ada", "system:serviceaccount:other:0"} {
		answer := must(s.client("HTTP/2.0").Do(s.request(t.Context(), user, "")))(t)
		if body := must(io.ReadAll(answer.Body))(t); answer.StatusCode != http.StatusOK || len(body) < 16<<20 {
			t.Errorf("%s receives %s, %d bytes", user, answer.Status, len(body))
		}
		answer.Body.Close()
	}
}

// Lists that nobody reads end when another user waits for their buffers.
func TestStalledListsEndForOthers(t *testing.T) {
	s := newStalledClients(t)
	s.mayEnd = true // after a second, in which the client may not have received the head
	for _, protocol := range protocols {
		before := s.ended.Load()
		s.budget.lists = newAdmission(2 * listBufferSize)
		s.budget.lists.stalledAfter = time.Second
		for _, user := range []string{"a", "b"} {
			defer s.start(protocol, user, "", 1)()
		}
		await.True(t, "all buffers are reserved", func() bool { return s.budget.lists.inUse() == 2*listBufferSize })
		answer := must(s.client(protocol).Do(s.request(t.Context(), "c", "")))(t)
		if body := must(io.ReadAll(answer.Body))(t); answer.StatusCode != http.StatusOK || len(body) < 16<<20 {
			t.Errorf("%s: another user receives %s, %d bytes", protocol, answer.Status, len(body))
		}
		answer.Body.Close()
		await.True(t, "a response of another has ended", func() bool { return s.ended.Load()-before >= 2 })
	}
}

// A budget can leave lists to the API server in place of refusing them.
func TestBusyIsDelegated(t *testing.T) {
	t.Parallel()
	s := newStalledClients(t)
	s.budget.lists.waiting = queueLength
	release := must(s.budget.lists.acquire(t.Context(), "ada", listCapacity))(t)
	defer release()
	if why := s.reasonFor(http.MethodGet, s.path(""), accept("application/json")); why != "" {
		t.Errorf("a list that is refused is delegated: %s", why)
	}
	s.budget.DelegateBusy()
	if why := s.reasonFor(http.MethodGet, s.path(""), accept("application/json")); why != reasonBusy {
		t.Errorf("the list is delegated for %q", why)
	}
}

// A response that its client does not read ends at the deadline of its request, and releases its buffers.
func TestStalledResponsesEnd(t *testing.T) {
	t.Parallel()
	s := newStalledClients(t)
	s.timeout, s.mayEnd = time.Second, true
	for _, protocol := range protocols {
		answered := s.answered.Load()
		// at once, unless the machine is busy
		await.True(t, protocol+": a response has begun before the deadline", func() bool {
			before := s.ended.Load()
			stop := s.start(protocol, "a", "", 5)
			s.waitForEnd(before + 5)
			if n := s.budget.lists.inUse(); n != 0 {
				t.Errorf("%s: %d bytes are reserved", protocol, n)
			}
			stop()
			return s.answered.Load() > answered
		})
	}
}

// A connection of HTTP/1.1 serves requests after the deadline of an earlier request that has ended.
func TestDeadlinesEndWithTheirRequests(t *testing.T) {
	t.Parallel()
	s := newStalledClients(t)
	client := s.client("HTTP/1.1")
	s.timeout = time.Minute
	first := must(client.Do(s.request(t.Context(), "a", "?limit=1")))(t)
	must(io.Copy(io.Discard, first.Body))(t)
	first.Body.Close()
	s.timeout = 0
	w := must(client.Do(s.request(t.Context(), "a", "?watch=1&resourceVersion=0&timeoutSeconds=600")))(t)
	defer w.Body.Close()
	must(io.ReadFull(w.Body, make([]byte, 1000)))(t)
}

// The buffers of watches whose clients have stopped reading are bounded, and the watches do not end.
func TestStalledWatchesAreBounded(t *testing.T) {
	s := newStalledClients(t)
	for _, protocol := range protocols {
		s.budget.watches = newAdmission(4 * watchBufferSize)
		before := s.ended.Load()
		stop := s.start(protocol, "a", "?watch=1&resourceVersion=0&timeoutSeconds=600", 10)
		await.True(t, protocol+": one user's watches have reserved half, and all have begun", func() bool {
			return s.budget.watches.inUse() == 2*watchBufferSize && s.begun.Load() == before+10
		})
		other := must(s.client(protocol).Do(s.request(t.Context(), "b", "?watch=1&resourceVersion=0&timeoutSeconds=600")))(t)
		must(io.ReadFull(other.Body, make([]byte, 16<<20)))(t)
		other.Body.Close()
		if ended := s.ended.Load() - before; ended > 1 {
			t.Errorf("%s: %d watches have ended", protocol, ended)
		}
		stop()
		s.waitForEnd(before + 11)
		if n := s.budget.watches.inUse(); n != 0 {
			t.Errorf("%s: %d bytes are reserved", protocol, n)
		}
	}
}

// Watches whose clients have stopped reading end a while after their cache, or their context, has ended.
func TestStalledWatchesEndWithTheCache(t *testing.T) {
	t.Parallel() // it waits
	for what, end := range map[string]func(*stalledClients){
		"cache":   func(s *stalledClients) { s.stop() },
		"context": func(s *stalledClients) { s.cancel() },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newStalledClients(t)
			s.budget.writeGrace = time.Second
			for _, protocol := range protocols {
				s.start(protocol, "a", "?watch=1&resourceVersion=0&timeoutSeconds=600", 3)
			}
			await.True(t, "the watches wait for their clients", func() bool {
				return s.budget.watches.inUse() == 6*watchBufferSize
			})
			end(s)
			s.waitForEnd(6)
			if n := s.budget.watches.inUse(); n != 0 {
				t.Errorf("%d bytes are reserved", n)
			}
		})
	}
}

// Watches send the same bytes with and without a buffer, and compressed.
func TestWatchesWithoutBuffers(t *testing.T) {
	budget := NewBudget(1 << 30)
	r := newRig(t, pods, options{budget: budget})
	first := r.create("default", "o0")
	for i := range 200 {
		r.create("default", fmt.Sprint("o", i+1), withLabel("tier", strconv.Itoa(i)))
	}
	r.waitFor(r.delete("default", "o7"))
	for _, media := range []string{"application/json", "application/vnd.kubernetes.protobuf", asTable,
		"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"} {
		for query, events := range map[string]int{
			"resourceVersion=0&": 200, "resourceVersion=" + first.GetResourceVersion() + "&": 201,
			"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&": 201,
		} {
			budget.watches = newAdmission(watchCapacity)
			with := r.events(query, media, "identity", events)
			compressed := r.events(query, media, "gzip", events)
			budget.watches = newAdmission(0)
			if without := r.events(query, media, "identity", events); !bytes.Equal(with, without) {
				t.Errorf("%s as %s: %d and %d bytes differ", query, media, len(with), len(without))
			}
			if without := r.events(query, media, "gzip", events); !bytes.Equal(with, compressed) || !bytes.Equal(with, without) {
				t.Errorf("%s as %s: %d, compressed %d, without a buffer %d bytes differ", query, media, len(with), len(compressed),
					len(without))
			}
		}
	}
}

// events returns the first n encoded events of a watch. Each write of a compressed one must be complete.
func (r *rig) events(query, media, encoding string, n int) (sent []byte) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	q := r.withInfo(must(http.NewRequestWithContext(ctx, http.MethodGet, r.path("")+"?watch=1&timeoutSeconds=600&"+query,
		nil))(r.t))
	q.Header = accept(media, "Accept-Encoding", encoding)
	client := &writingClient{}
	client.write = func(b []byte) {
		if client.Header().Get("Content-Encoding") == "gzip" {
			b = gunzip(r.t, b)
		}
		if sent = append(sent, b...); countFrames(sent, strings.Contains(media, "protobuf")) == n {
			cancel()
		}
	}
	r.handler.ServeHTTP(client, q)
	if compressed := client.Header().Get("Content-Encoding") == "gzip"; compressed != (encoding == "gzip" &&
		strings.Contains(query, "sendInitialEvents")) {
		r.t.Errorf("%s, %s: compressed is %v", query, encoding, compressed)
	}
	return sent
}

// countFrames returns the number of complete events: lines, or length-prefixed messages in protobuf.
func countFrames(b []byte, protobuf bool) (n int) {
	if !protobuf {
		return bytes.Count(b, newline)
	}
	for ; len(b) >= 4; n++ {
		size := 4 + int(binary.BigEndian.Uint32(b))
		if len(b) < size {
			break
		}
		b = b[size:]
	}
	return n
}

// A large list is encoded after it is admitted, also if its length must be known first.
func TestLargeListsAreMeasuredOnceAdmitted(t *testing.T) {
	budget := NewBudget(1 << 30)
	r := newRig(t, widgets, options{budget: budget})
	for i := range 300 { // 3 MB
		r.create("default", fmt.Sprint("o", i), withNote(string(bytes.Repeat([]byte("x"), 10_000))))
	}
	budget.lists = newAdmission(listBufferSize)
	release := must(budget.lists.acquire(t.Context(), "another", listBufferSize))(t)
	type response struct {
		*http.Response
		body []byte
	}
	got := make(chan response)
	go func() {
		answer, body := r.get(r.path(""),
			accept("application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"))
		got <- response{answer, body}
	}()
	await.True(t, "the list waits", func() bool {
		budget.lists.mu.Lock()
		defer budget.lists.mu.Unlock()
		return budget.lists.waiting == 1
	})
	if cached := budget.Bytes(); cached > 2*gzipFrom {
		t.Errorf("%d bytes are encoded while it waits", cached)
	}
	release()
	if a := <-got; a.StatusCode != http.StatusOK || a.ContentLength != int64(len(a.body)) || len(a.body) < 3_000_000 {
		t.Errorf("%s, %d bytes of %d", a.Status, len(a.body), a.ContentLength)
	}
}
