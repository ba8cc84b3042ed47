package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/source/etcd"
	"github.com/keepwatch/keepwatch/store"
)

// writing is a target whose lists are disturbed by writes.
type writing struct {
	*store.Store
	write func(put int)
}

func (w writing) Replace(ctx context.Context, relist keepwatch.Relist) (keepwatch.Replacement, error) {
	list, err := w.Store.Replace(ctx, relist)
	return &disturbed{list, w.write, 0}, err
}

type disturbed struct {
	keepwatch.Replacement
	write func(put int)
	puts  int
}

func (d *disturbed) Put(ctx context.Context, objects []keepwatch.Object) error {
	d.write(d.puts)
	d.puts++
	return d.Replacement.Put(ctx, objects)
}

// A streamed state has one revision, although writes happen while it is read.
func TestStreamedStateIsOneState(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	large := strings.Repeat("x", 100<<10) // etcd begins with chunks of ten keys
	var at keepwatch.Revision
	for i := range 60 {
		at = w.put(t, fmt.Sprintf("ns/%02d", i), large)
	}
	puts := 0
	target := writing{store.New(store.Options{}), func(put int) {
		puts++
		w.put(t, fmt.Sprintf("ns/%02d", 59-put), "new")
		w.delete(t, fmt.Sprintf("ns/%02d", 58-put))
	}}
	if seeded := must(w.Seed(t.Context(), target, 0))(t); seeded != at {
		t.Fatalf("seeded at %d, want %d", seeded, at)
	}
	n := 0
	for o := range target.Snapshot().All() {
		if string(o.(*etcd.Object).Value()) != large {
			t.Errorf("%s is of a later revision", o.Key())
		}
		n++
	}
	if n != 60 || puts < 3 {
		t.Errorf("the state has %d objects, in %d parts", n, puts)
	}
}

// A state whose chunks are too large for a message is read by pages, which become smaller.
func TestLargeChunks(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	w.LimitMessages(50 << 10)
	for i := range 60 {
		w.put(t, fmt.Sprintf("%02d", i), strings.Repeat("x", 10<<10))
	}
	cache := store.New(store.Options{})
	must(w.Seed(t.Context(), cache, 0))(t)
	if n := cache.Snapshot().Len(); n != 60 {
		t.Errorf("the state has %d objects", n)
	}
}

// PagesOnly reads no stream.
func TestPagesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, s := startScripted(t, etcd.Options{PagesOnly: true})
		server.script(created, progress(100))
		server.stream = func(pb.KV_RangeStreamServer) error {
			t.Error("a state is streamed")
			return nil
		}
		must(s.Seed(t.Context(), store.New(store.Options{}), 0))(t)
	})
}

// Pages continue where a stream ends before its last chunk, whatever the reason.
func TestStreamsThatBreak(t *testing.T) {
	kv := func(i int) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: fmt.Appendf(nil, "/p/%d", i), CreateRevision: 1, ModRevision: 1, Version: 1}
	}
	chunk := func(h *pb.ResponseHeader, kvs ...*mvccpb.KeyValue) *pb.RangeStreamResponse {
		return &pb.RangeStreamResponse{RangeResponse: &pb.RangeResponse{Header: h, Kvs: kvs}}
	}
	header := &pb.ResponseHeader{ClusterId: 1, Revision: 100}
	unavailable := status.Error(codes.Unavailable, "the member stops")
	for name, test := range map[string]struct {
		chunks []*pb.RangeStreamResponse
		end    error // after the chunks; nil is the end of the stream
		hangs  bool  // in place of an end
		pages  int   // keys that pages have to read
		fails  keepwatch.FailureKind
	}{
		"complete": {chunks: []*pb.RangeStreamResponse{chunk(nil, kv(0), kv(1)), chunk(nil, kv(2)),
			chunk(header, kv(3))}},
		"complete, without keys last": {chunks: []*pb.RangeStreamResponse{chunk(nil, kv(0), kv(1), kv(2), kv(3)),
			chunk(header)}},
		"not supported": {end: status.Error(codes.Unimplemented, "unknown method RangeStream"), pages: 4},
		"a proxy": {end: status.Error(codes.Unimplemented,
			"RangeStream is not supported by the gRPC proxy"), pages: 4},
		"broken at once": {end: unavailable, pages: 4},
		"broken": {chunks: []*pb.RangeStreamResponse{chunk(nil, kv(0), kv(1))}, end: unavailable,
			pages: 2},
		"broken after the last": {chunks: []*pb.RangeStreamResponse{chunk(nil, kv(0)), chunk(header, kv(1), kv(2),
			kv(3))}, end: unavailable},
		"ends early":            {chunks: []*pb.RangeStreamResponse{chunk(nil, kv(0), kv(1), kv(2))}, pages: 1},
		"ends without anything": {pages: 4},
		"an empty message":      {chunks: []*pb.RangeStreamResponse{{}, chunk(nil, kv(0))}, pages: 3},
		"silent":                {chunks: []*pb.RangeStreamResponse{chunk(nil, kv(0))}, hangs: true, pages: 3},
		"compacted": {chunks: []*pb.RangeStreamResponse{chunk(nil, kv(0))}, end: rpctypes.ErrGRPCCompacted,
			pages: 3},
		"the permission is taken away": {chunks: []*pb.RangeStreamResponse{chunk(header, kv(0), kv(1), kv(2), kv(3))},
			end: rpctypes.ErrGRPCPermissionDenied},
		"of another cluster": {chunks: []*pb.RangeStreamResponse{chunk(&pb.ResponseHeader{ClusterId: 2,
			Revision: 100}, kv(0))}, fails: keepwatch.Rewound},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, s := startScripted(t, etcd.Options{})
				server.script(created, progress(100))
				server.stream = func(out pb.KV_RangeStreamServer) error {
					for _, c := range test.chunks {
						if err := out.Send(c); err != nil {
							return err
						}
					}
					if test.hangs {
						<-out.Context().Done()
					}
					return test.end
				}
				paged, requests := 0, 0
				server.read = func(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
					answer := &pb.RangeResponse{Header: server.header()}
					if r.RangeEnd != nil && !r.CountOnly {
						requests++
					}
					for i := range 4 {
						o := kv(i)
						if page := r.RangeEnd != nil && !r.CountOnly; page && string(o.Key) >= string(r.Key) {
							answer.Kvs = append(answer.Kvs, o)
							paged++
						} else if string(o.Key) == string(r.Key) { // of the last write that is known
							answer.Kvs = append(answer.Kvs, o)
						}
					}
					return answer, nil
				}
				cache := store.New(store.Options{})
				_, err := s.Seed(t.Context(), cache, 0)
				if test.fails != 0 {
					wantKind(t, err, test.fails)
					return
				}
				if n := cache.Snapshot().Len(); err != nil || n != 4 || paged != test.pages {
					t.Errorf("%d objects, %d of them by pages, want %d: %v", n, paged, test.pages, err)
				}
				if whole := test.end == nil && test.pages == 0; whole != (requests == 0) {
					t.Errorf("%d pages are requested", requests)
				}
			})
		})
	}
}
