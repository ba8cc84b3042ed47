package etcd_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/source/etcd"
)

// All pages of a list show the same revision, although writes happen between them.
func TestListIsOneState(t *testing.T) {
	w := newFixture(t, etcd.Options{PageSize: 3})
	var revision keepwatch.Revision
	for i := range 10 {
		revision = w.put(t, fmt.Sprintf("ns/%d", i), "old")
	}
	page := must(w.List(t.Context(), keepwatch.ListRequest{}))(t)
	if page.Revision != revision || page.Remaining != 7 {
		t.Errorf("the first page has revision %d and %d remaining, want %d and 7", page.Revision, page.Remaining, revision)
	}
	var seen []string
	for n := 0; ; n++ {
		for _, o := range page.Objects {
			seen = append(seen, o.Key().String()+"="+string(o.(*etcd.Object).Value()))
		}
		if page.Continue == "" {
			break
		}
		w.put(t, fmt.Sprintf("ns/%d", 9-n), "new")
		w.delete(t, fmt.Sprintf("ns/%d", 8-n))
		w.put(t, fmt.Sprintf("ns/%d-new", n), "new")
		page = must(w.List(t.Context(), keepwatch.ListRequest{Continue: page.Continue}))(t)
	}
	if got, want := strings.Join(seen, " "),
		"ns/0=old ns/1=old ns/2=old ns/3=old ns/4=old ns/5=old ns/6=old ns/7=old ns/8=old ns/9=old"; got != want {
		t.Errorf("the list shows %s", got)
	}
}

// A prefix does not cover a resource whose name begins with it (kubernetes #25342).
func TestPrefixEndsAtASlash(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	begin := w.put(t, "ns/a", "1")
	must(w.Client.Put(t.Context(), strings.TrimSuffix(w.prefix, "/")+"1/ns/a", "other"))(t)
	must(w.Client.Put(t.Context(), w.prefix, "the prefix itself"))(t)
	end := w.put(t, "b", "2")
	objects, _ := list(t, w)
	var keys []string
	for _, o := range objects {
		keys = append(keys, o.Key().String())
	}
	if !slices.Equal(keys, []string{"b", "ns/a"}) {
		t.Errorf("the list shows %q", keys)
	}
	if got := describe(readTo(t, w.watch(t, begin), begin, end)); got != "+b=2" {
		t.Errorf("the watch shows %s", got)
	}
}

func TestListAfterCompaction(t *testing.T) {
	w := newFixture(t, etcd.Options{PageSize: 1})
	w.put(t, "a", "1")
	w.put(t, "b", "1")
	page := must(w.List(t.Context(), keepwatch.ListRequest{}))(t)
	must(w.Compact(t.Context(), int64(w.put(t, "a", "2"))))(t)
	_, err := w.List(t.Context(), keepwatch.ListRequest{Continue: page.Continue})
	wantKind(t, err, keepwatch.Expired)
}

func TestListRejectsForeignRequests(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	newest := w.put(t, "a", "1")
	_, err := w.List(t.Context(), keepwatch.ListRequest{Continue: "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ"})
	wantKind(t, err, keepwatch.Rejected)
	_, err = w.List(t.Context(), keepwatch.ListRequest{NotOlderThan: newest + 1000})
	wantKind(t, err, keepwatch.Rewound)
	_, err = w.List(t.Context(), keepwatch.ListRequest{Continue: fmt.Sprintf("%d 5 a", newest+1000)})
	wantKind(t, err, keepwatch.Rewound)
	_, _, err = w.StreamList(t.Context(), 0, nil)
	wantKind(t, err, keepwatch.StreamingListUnsupported)
	_, err = w.Source.Watch(t.Context(), 0)
	wantKind(t, err, keepwatch.InvariantViolation)
}

// A page that is too large for a message is requested again with a lower limit.
func TestLargePages(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	w.LimitMessages(50 << 10)
	large := strings.Repeat("x", 1<<10)
	for i := range 60 {
		w.put(t, fmt.Sprintf("%02d", i), large)
	}
	page := must(w.List(t.Context(), keepwatch.ListRequest{}))(t)
	if n := len(page.Objects); n != 31 { // 500, 250, 125, 62, 31
		t.Errorf("the first page has %d objects", n)
	}
	page = must(w.List(t.Context(), keepwatch.ListRequest{Continue: page.Continue}))(t)
	if n := len(page.Objects); n != 29 || page.Continue != "" {
		t.Errorf("the second page has %d objects", n)
	}
	w.LimitMessages(1 << 10)
	_, err := w.List(t.Context(), keepwatch.ListRequest{})
	wantKind(t, err, keepwatch.Undecodable)
}

// Limits grow with small objects. Large objects follow, of which one page of 10,000 would
// have 84 MB.
func TestLargeObjectsAfterSmall(t *testing.T) {
	t.Parallel()
	const small, large = 10_000, 60
	w := newFixture(t, etcd.Options{})
	for begin := 0; begin < small; begin += 100 { // etcd accepts 128 operations in a transaction
		var puts []clientv3.Op
		for i := range 100 {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("%sa/%05d", w.prefix, begin+i), "small"))
		}
		must(w.Txn(t.Context()).Then(puts...).Commit())(t)
	}
	value := strings.Repeat("x", 1_400_000)
	for i := range large {
		w.put(t, fmt.Sprintf("b/%02d", i), value)
	}
	if objects, _ := list(t, w); len(objects) != small+large {
		t.Errorf("%d objects are listed, want %d", len(objects), small+large)
	}
}

// A page that etcd can't send, or that breaks the connection, is requested with fewer keys.
func TestPageTooLargeForEtcd(t *testing.T) {
	for name, row := range map[string]struct {
		refusal error
		fails   int // lists
		want    int64
	}{
		"more than gRPC sends": {status.Error(codes.ResourceExhausted,
			"grpc: trying to send message larger than max (14000000000 vs. 2147483647)"), 0, 23},
		"the connection ends": {status.Error(codes.Unavailable, "error reading from server: EOF"), 5, 9},
	} {
		t.Run(name, func(t *testing.T) {
			const keys = 100_000
			server, s := startScripted(t, etcd.Options{})
			server.read = func(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
				answer := &pb.RangeResponse{Header: server.header(), Count: keys, More: true}
				if begin := string(r.Key); strings.HasPrefix(begin, "/p/b") && r.Limit > 30 {
					return nil, row.refusal
				}
				for i := range r.Limit {
					answer.Kvs = append(answer.Kvs, &mvccpb.KeyValue{Key: fmt.Appendf(nil, "/p/b%05d", i), CreateRevision: 1,
						ModRevision: 1, Version: 1})
				}
				return answer, nil
			}
			fails := 0
			for {
				page, err := s.List(t.Context(), keepwatch.ListRequest{Continue: "100 10000 b"})
				if err != nil {
					if fails++; fails > row.fails {
						t.Fatal(err)
					}
					continue
				}
				if n := int64(len(page.Objects)); n != row.want || fails != row.fails {
					t.Errorf("the page has %d objects after %d failures, want %d after %d", n, fails, row.want, row.fails)
				}
				return
			}
		})
	}
}

func TestOptions(t *testing.T) {
	client := dial(t, clientv3.Config{Endpoints: shared.endpoints()})
	for _, opts := range []etcd.Options{{}, {Prefix: "/registry/pods"}, {Prefix: "/", PageSize: -1},
		{Prefix: "/", IdleTimeout: -1}} {
		if _, err := etcd.New(client, opts); err == nil {
			t.Errorf("New accepts %+v", opts)
		}
	}
	unconnected := clientv3.NewCtxClient(t.Context())
	defer unconnected.Close()
	if _, err := etcd.New(unconnected, etcd.Options{Prefix: "/"}); err == nil {
		t.Error("New accepts a client without a connection")
	}
}
