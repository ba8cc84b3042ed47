package storage_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// logged has the lines about lists that this package's tests have logged.
var logged relistLog

type relistLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *relistLog) add(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(line, "lists etcd again") {
		l.lines = append(l.lines, line)
	}
}

func (l *relistLog) contains(parts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		found := true
		for _, part := range parts {
			found = found && strings.Contains(line, part)
		}
		if found {
			return true
		}
	}
	return false
}

// versions changes the Version of all keys that etcd sends in watches.
type versions struct{ skew atomic.Int64 }

func (v *versions) intercept(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, cc, method, opts...)
	return skewed{stream, v}, err
}

type skewed struct {
	grpc.ClientStream
	versions *versions
}

func (s skewed) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if response, ok := m.(*pb.WatchResponse); ok && err == nil {
		for _, e := range response.Events {
			e.Kv.Version = max(0, e.Kv.Version+s.versions.skew.Load())
		}
	}
	return err
}

// A list that a protocol violation causes is counted by its reason, and logged.
func TestRelistIsLoggedAndCounted(t *testing.T) {
	t.Parallel()
	of, v := uncounted(), &versions{}
	r := newRig(t, options{resource: of, dial: []grpc.DialOption{grpc.WithChainStreamInterceptor(v.intercept)}})
	r.create("a")
	r.list(everything)
	v.skew.Store(1) // an event seems to be missing
	r.label("a", "x")
	const name, reason = "keepwatch_storage_relists_total", "protocol violation"
	await.True(t, "the list is counted", func() bool { return metric(t, of, name, "reason", reason) == 1 })
	await.True(t, "a line reports it", func() bool { return logged.contains(of.String(), reason) }) // after the count
}

// A server without versions, such as kine, is followed without further lists.
func TestVersionsThatAreNotCounted(t *testing.T) {
	t.Parallel()
	of, v := uncounted(), &versions{}
	v.skew.Store(-1 << 32)
	r := newRig(t, options{resource: of, dial: []grpc.DialOption{grpc.WithChainStreamInterceptor(v.intercept)}})
	w := r.watch("/pods/", from("0"))
	r.create("a")
	for range 20 {
		r.label("a", "x")
		r.label("a", "y")
	}
	r.delete("a")
	for i := range 42 {
		if _, open := <-w.ResultChan(); !open {
			t.Fatalf("the watch ended after %d events of 42", i)
		}
	}
	if n := metric(t, of, "apiserver_watch_cache_events_dispatched_total"); n != 42 {
		t.Errorf("%v changes came as events, want 42", n)
	}
	r.restart()
	r.create("b")
	r.list(everything)
	if logged.contains(of.String()) {
		t.Error("the storage has listed again")
	}
}
