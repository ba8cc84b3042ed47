package past

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// put adds a state of an object, which ends the one before it.
func (c churn) put(name string, from, content int) {
	at := sink.Point{Revision: keepwatch.Revision(from)}
	key := keepwatch.Key{Namespace: "shop", Name: name}
	c.end(name, at, false)
	*c.states = append(*c.states, c.state(key, keepwatch.UID(name), at, content))
}

// end ends the state of an object.
func (c churn) end(name string, at sink.Point, deleted bool) {
	for i := range *c.states {
		if s := &(*c.states)[i]; s.Key.Name == name && s.To == nil {
			s.To, s.SeenTo, s.Deleted = &at, clock("10:00"), deleted
		}
	}
}

// replayed opens a watch, and returns its next events as "ADDED a@12".
func replayed(t *testing.T, s *Server, path string) (next func() string) {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer x")
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(response.Body); scanner.Scan(); {
			select {
			case lines <- scanner.Text():
			case <-t.Context().Done():
				return
			}
		}
	}()
	return func() string {
		t.Helper()
		line := await.Receive(t, "an event of the watch", lines)
		var event struct {
			Type   string
			Object struct {
				Reason, Message string
				Metadata        struct{ Name, ResourceVersion string }
			}
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%d: %q: %v", response.StatusCode, line, err)
		}
		if o := event.Object; event.Type == "ERROR" {
			return o.Reason + ": " + o.Message
		}
		return fmt.Sprintf("%s %s@%s", event.Type, event.Object.Metadata.Name, event.Object.Metadata.ResourceVersion)
	}
}

// A replay passes a gap as the difference between its ends, in which objects that have not changed are not, and goes on
// behind it.
func TestReplayOverAGap(t *testing.T) {
	t.Parallel()
	type watch struct {
		reason keepwatch.GapReason
		query  string
		next   func() string
	}
	var watches []watch
	for _, reason := range []keepwatch.GapReason{keepwatch.GapExpired, keepwatch.GapDowntime, sink.GapThinned} {
		c := newChurn()
		for i, name := range []string{"same", "changed", "deleted"} {
			c.put(name, 11+i, i)
		}
		c.put("changed", 27, 4)
		c.end("deleted", sink.Point{Revision: 30}, true)
		c.put("added", 28, 5)
		c.put("same", 40, 6)
		*c.gaps = append(*c.gaps, sink.StoredGap{Resource: "secrets", From: 20, To: 30, Reason: reason,
			Seen: clock("10:00"), Began: clock("10:00"), Ended: clock("10:00")})
		*c.cursor = 45
		s, err := New(Config{History: history.New(c, history.Options{}), Token: "x"})
		if err != nil {
			t.Fatal(err)
		}
		defer run(t, s)()
		for _, query := range []string{"resourceVersion=15", "", "resourceVersion=20&fieldSelector=metadata.namespace%3Dshop"} {
			watches = append(watches, watch{reason, query,
				replayed(t, s, "/at/revision/15/speed/0/api/v1/secrets?watch=1&"+query)})
		}
	}
	for _, w := range watches {
		want := "DELETED deleted@20, MODIFIED changed@27, ADDED added@28, MODIFIED same@40"
		if w.query == "" {
			want = "ADDED changed@12, ADDED deleted@13, ADDED same@11, " + want
		}
		var got []string
		for range strings.Count(want, "@") {
			got = append(got, w.next())
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s, %q: %s, want %s", w.reason, w.query, text, want)
		}
	}
}

// A client that watches by a WebSocket, as fabric8's does, receives each event as a message, and what it asks to see
// whether the connection lives is answered. A watch that is refused is answered by HTTP.
func TestWebSockets(t *testing.T) {
	t.Parallel()
	c := newChurn()
	c.put("a", 12, 1)
	c.put("b", 13, 2)
	*c.cursor = 20
	s, err := New(Config{History: history.New(c, history.Options{}), Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer run(t, s)()
	server := httptest.NewServer(s)
	defer server.Close()
	dial := func(query string) (*websocket.Conn, *http.Response, error) {
		return websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http")+
			"/at/revision/11/speed/0/api/v1/secrets?watch=1&"+query, http.Header{"Authorization": {"Bearer x"}})
	}
	conn, response, err := dial("resourceVersion=11")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if moment := response.Header.Get(momentHeader); !strings.HasPrefix(moment, "revision=11,") {
		t.Errorf("the moment is %q", moment)
	}
	for _, want := range []string{"a", "b"} {
		var event struct {
			Type   string
			Object struct{ Metadata struct{ Name string } }
		}
		if err := conn.ReadJSON(&event); err != nil || event.Type != "ADDED" || event.Object.Metadata.Name != want {
			t.Fatalf("%+v, %v", event, err)
		}
	}
	alive := make(chan string, 1)
	conn.SetPongHandler(func(text string) error {
		alive <- text
		return nil
	})
	if err := conn.WriteControl(websocket.PingMessage, []byte("?"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, _, err := conn.ReadMessage()
		ended <- err
	}()
	if text := await.Receive(t, "an answer to a ping", alive); text != "?" {
		t.Errorf("the answer to a ping is %q", text)
	}
	open := func() int {
		s.caches.mu.Lock()
		defer s.caches.mu.Unlock()
		return s.caches.replays
	}
	if n := open(); n != 1 {
		t.Errorf("%d replays are open", n)
	}
	if err := conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
		time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := await.Receive(t, "the end of the connection", ended); !websocket.IsCloseError(err,
		websocket.CloseNormalClosure) {
		t.Errorf("the connection ends with %v", err)
	}
	await.True(t, "the replay is closed", func() bool { return open() == 0 })
	conn, _, err = dial("resourceVersion=11&timeoutSeconds=1") // the server ends it
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for err == nil {
		_, _, err = conn.ReadMessage()
	}
	if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("the watch ends with %v", err)
	}
	if _, response, err = dial("resourceVersion=11&labelSelector=,,"); err == nil || response.StatusCode != 400 {
		t.Errorf("a bad selector: %+v, %v", response, err)
	}
}

// A replay ends where etcd was restored from a backup, since revisions go back there, and says from which moment on
// another one has the rest.
func TestReplayUpToARestore(t *testing.T) {
	t.Parallel()
	s, err := New(Config{History: history.New(rewound{}, history.Options{}), Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer run(t, s)()
	watch := func(moment, query string, want ...string) {
		t.Helper()
		next := replayed(t, s, "/at/"+moment+"/speed/0/api/v1/secrets?watch=1&"+query)
		for _, w := range want {
			if got := next(); got != w {
				t.Errorf("at %s: %s, want %s", moment, got, w)
			}
		}
	}
	watch("2026-11-28T10:14:59Z", "resourceVersion=95", "MODIFIED s0@98",
		"Expired: etcd was restored from a backup after revision 100: watch on from the moment 2026-11-28T10:20:00Z")
	watch("2026-11-28T10:20:00Z", "", "ADDED s0@70", "ADDED s1@70", "ADDED s2@70", "ADDED s3@70", "ADDED s4@70",
		"MODIFIED s0@101", "MODIFIED s1@102", "MODIFIED s2@103", "MODIFIED s3@104", "MODIFIED s4@105")
}

// A replay begins at the time of its address, not at the last change before it, and at the moment now nothing waits.
func TestReplayBeginsAtItsMoment(t *testing.T) {
	t.Parallel()
	s, err := New(Config{History: history.New(rewound{}, history.Options{}), Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	s.now = func() time.Time { return clock("10:40") }
	defer run(t, s)()
	for path, want := range map[string]string{ // the first change is due at once, and not later than tests wait
		"/at/2026-11-28T10:14:59Z/speed/1.5/api/v1/secrets?watch=1&resourceVersion=95": "MODIFIED s0@98",
		"/at/now/speed/0.5/api/v1/secrets?watch=1&resourceVersion=70":                  "MODIFIED s0@101",
	} {
		if got := replayed(t, s, path)(); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// padded is a churn whose objects are large.
type padded struct {
	churn
	padding string
}

func (p padded) Snapshot(_ context.Context, read func(sink.Snapshot) error) error {
	p.Lock()
	defer p.Unlock()
	return read(p)
}

func (p padded) States(ctx context.Context, q sink.StateQuery, yield func(sink.State) error) error {
	return p.churn.States(ctx, q, func(s sink.State) error {
		if s.Object != nil {
			s.Object = bytes.Replace(s.Object, []byte(`"content":"`), []byte(`"content":"`+p.padding), 1)
		}
		return yield(s)
	})
}

// slow is a client that reads nothing before read returns.
type slow struct {
	*httptest.ResponseRecorder
	read func(written string)
}

func (s slow) Write(p []byte) (int, error) {
	s.read(string(p))
	return len(p), nil
}

// A client that is slower than the database receives each state that is recorded, whatever it selects, and what the
// server has read for it meanwhile is bounded and counted.
func TestReplayWaitsForItsReader(t *testing.T) {
	t.Parallel()
	const objects, size, changes = 5, 200_000, 200 // more than a store has in memory
	for _, query := range []string{"", "&fieldSelector=metadata.name%3Ds0", "&labelSelector=l%3D0"} {
		synctest.Test(t, func(t *testing.T) {
			c := padded{newChurn(), strings.Repeat("x", size)}
			var want []int
			for i := range changes {
				c.put(fmt.Sprint("s", i%objects), 11+i, 3*i) // all have the label
				if query != "&fieldSelector=metadata.name%3Ds0" || i%objects == 0 {
					want = append(want, 11+i)
				}
			}
			*c.cursor = 11 + changes
			s, err := New(Config{History: history.New(c, history.Options{}), Token: "x"})
			if err != nil {
				t.Fatal(err)
			}
			defer run(t, s)()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var got []int
			read := func(written string) {
				synctest.Wait() // the server reads as far ahead as it does
				s.caches.mu.Lock()
				if bytes := s.caches.replayed; bytes > (objects+1)*(size+2*objectBytes)+1<<20+size {
					t.Errorf("after %d events the replay has %d bytes", len(got), bytes)
				}
				s.caches.mu.Unlock()
				for line := range strings.Lines(written) {
					_, rest, _ := strings.Cut(line, `"resourceVersion":"`)
					var revision int
					if _, err := fmt.Sscan(strings.ReplaceAll(rest, `"`, " "), &revision); err != nil {
						t.Errorf("%.300s: %v", line, err)
					}
					got = append(got, revision)
				}
				if len(got) == len(want) || t.Failed() {
					cancel()
				}
			}
			q := httptest.NewRequestWithContext(ctx, http.MethodGet,
				"/at/revision/10/speed/0/api/v1/secrets?watch=1&timeoutSeconds=60"+query, nil)
			q.Header.Set("Authorization", "Bearer x")
			s.ServeHTTP(slow{httptest.NewRecorder(), read}, q)
			if !slices.Equal(got, want) {
				t.Errorf("%q: %d events of %d", query, len(got), len(want))
			}
			await.True(t, "the replay has ended, and nothing of it is counted", func() bool {
				s.caches.mu.Lock()
				defer s.caches.mu.Unlock()
				return s.caches.replays == 0 && s.caches.replayed == 0
			})
		})
	}
}

// What has changed since a replay began counts, too: beside others it ends at the bound, and its client receives 429.
func TestReplaysThatGrowAreBounded(t *testing.T) {
	t.Parallel()
	c := newChurn()
	for i := range 100 {
		c.put(fmt.Sprint("s", i), 11+i, i)
	}
	*c.cursor = 120
	s, err := New(Config{History: history.New(c, history.Options{}), Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	s.caches.maxBytes = 1000
	defer run(t, s)()
	grows := func() string {
		next := replayed(t, s, "/at/revision/10/speed/0/api/v1/secrets?watch=1")
		for range 100 {
			if event := next(); !strings.HasPrefix(event, "ADDED ") {
				return event
			}
		}
		return "everything"
	}
	stop := s.watch(t, 120)
	if end := grows(); end != "TooManyRequests: open watches of the past (2) have 0 MiB: try again when some of them have ended" {
		t.Errorf("beside another watch it ends with %q", end)
	}
	stop()
	if end := grows(); end != "everything" {
		t.Errorf("alone it ends with %q", end)
	}
}
