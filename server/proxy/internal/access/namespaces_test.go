package access

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/reflector"
)

// No decision about a namespace counts after its deletion: one of the same name, which somebody else may have made, is
// another one. A change that leaves the namespace what it is forgets nothing, and is none for personal views.
func TestDecisionsEndWithTheirNamespace(t *testing.T) {
	t.Parallel()
	events := make(chan string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch values := q.URL.Query(); {
		case values.Has("sendInitialEvents"):
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","reason":"Invalid","code":422}`))
			return
		case !values.Has("watch"):
			_, _ = w.Write([]byte(`{"kind":"NamespaceList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[` +
				`{"metadata":{"name":"b","uid":"1","resourceVersion":"5"}}]}`))
			return
		}
		for {
			select {
			case e := <-events:
				_, _ = w.Write([]byte(e + "\n"))
				w.(http.Flusher).Flush()
			case <-q.Context().Done():
				return
			}
		}
	}))
	defer server.Close()
	p := &permissions{scopes: newScopes()}
	defer p.close()
	n, err := newNamespaces(&rest.Config{Host: server.URL, QPS: -1}, p)
	if err != nil {
		t.Fatal(err)
	}
	var changes atomic.Int64
	n.changed = func(...string) { changes.Add(1) }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); n.run(ctx) }()
	defer func() { cancel(); <-ended }()
	forgotten := func() uint64 {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.scopes.changed("b")
	}
	has := func(want keepwatch.UID) func() (bool, string) {
		return func() (bool, string) {
			uids, err := n.uids()
			return err == nil && uids["b"] == want, fmt.Sprint(uids, err)
		}
	}
	await.State(t, "the namespace is known", has("1"))
	await.True(t, "that is a change", func() bool { return changes.Load() == 1 })
	send := func(kind, uid string, revision int) {
		events <- fmt.Sprintf(`{"type":%q,"object":{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"b","uid":%q,"resourceVersion":"%d"}}}`,
			kind, uid, revision)
	}
	send("MODIFIED", "1", 6)
	send("MODIFIED", "1", 7)
	send("DELETED", "1", 8)
	await.True(t, "the decisions are forgotten", func() bool { return forgotten() > 0 })
	await.True(t, "that is a change", func() bool { return changes.Load() == 2 })
	before := forgotten()
	send("ADDED", "2", 9)
	await.State(t, "the next one is known", has("2"))
	await.True(t, "that is a change", func() bool { return changes.Load() == 3 })
	if forgotten() != before {
		t.Error("decisions are forgotten although there can be none")
	}
}

// That the proxy may not list the namespaces counts when the server repeats it while it is ready. Then they are not
// known, and personal views learn that; and the namespaces are known again when the server allows them.
func TestRefusedNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &quietServer{ended: make(chan struct{})}
		config := &rest.Config{Host: "http://server", Transport: server, QPS: -1}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		p := &permissions{scopes: newScopes(), probe: newProbe(client.Discovery().RESTClient())}
		if err := p.probe.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		n, err := newNamespaces(config, p)
		if err != nil {
			t.Fatal(err)
		}
		var changes atomic.Int64
		n.changed = func(...string) { changes.Add(1) }
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { defer close(stopped); n.run(ctx) }()
		defer func() { cancel(); <-stopped }()
		is := func(refused bool, changed int64, what string) {
			t.Helper()
			synctest.Wait()
			if _, err := n.uids(); n.refused() != refused || (err != nil) != refused || changes.Load() != changed {
				t.Errorf("%s: refused %v, %v, %d changes", what, n.refused(), err, changes.Load())
			}
		}
		time.Sleep(time.Minute)
		is(false, 0, "at first")
		for _, unready := range []bool{false, true} {
			server.fail(http.StatusServiceUnavailable)
			time.Sleep(time.Minute)
			server.failure.Store(http.StatusForbidden)
			server.unready.Store(unready)
			for n.reflector.Progress().State != reflector.Forbidden {
				time.Sleep(time.Millisecond)
			}
			is(false, 0, "after one denial")
			if unready {
				time.Sleep(time.Minute)
				is(false, 0, "while the server is not ready")
				server.unready.Store(false)
			}
			server.recover()
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
				is(false, 0, "after a start")
			}
			if state := n.reflector.Progress().State; !unready && state != reflector.Live {
				t.Errorf("a minute after one denial: %s", state)
			}
			time.Sleep(10 * time.Minute)
		}
		server.fail(http.StatusForbidden)
		time.Sleep(time.Minute)
		is(true, 1, "a minute after the right was withdrawn")
		server.recover()
		time.Sleep(10 * time.Minute)
		is(false, 1, "when it is given again")
	})
}
