package readpath

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// heldWatches is an etcd whose watches deliver nothing from a moment on.
type heldWatches struct {
	held    chan struct{}
	release chan struct{}
}

func (h *heldWatches) intercept(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, conn, method, opts...)
	return heldStream{stream, h}, err
}

type heldStream struct {
	grpc.ClientStream
	by *heldWatches
}

func (s heldStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if _, watched := m.(*pb.WatchResponse); watched {
		select {
		case <-s.by.held:
			<-s.by.release
		default:
		}
	}
	return err
}

// A consistent read that has waited for a late cache is delegated, and the API server's handlers do not wait for the
// cache again: they read etcd.
func TestDelegatedReadsDoNotWaitAgain(t *testing.T) {
	t.Parallel() // it waits
	etcd, backend := &heldWatches{make(chan struct{}), make(chan struct{})}, must(etcd())(t)
	release := sync.OnceFunc(func() { close(etcd.release) })
	client := must(clientv3.New(clientv3.Config{Endpoints: backend.client.Endpoints(), Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(etcd.intercept)}}))(t)
	t.Cleanup(func() { client.Close() })
	r := newRig(t, pods, options{client: client})
	t.Cleanup(release)
	r.waitFor(r.create("default", "o1"))
	close(etcd.held)
	r.create("default", "o2")

	var shown []string
	r.next = func(q *http.Request) {
		list := &corev1.PodList{}
		// The watch cache's own test shows that reads in such a context do not wait.
		if of := fmt.Sprint(q.Context()); !strings.Contains(of, "watchcache.waited") {
			t.Errorf("the handlers do not know that the request has waited: %s", of)
		}
		err := r.storage.GetList(q.Context(), "/pods/", apistorage.ListOptions{Predicate: apistorage.Everything,
			Recursive: true}, list)
		one := &corev1.Pod{}
		if err = errors.Join(err, r.storage.Get(q.Context(), "/pods/default/o2", apistorage.GetOptions{}, one)); err != nil {
			t.Error(err)
		}
		for _, pod := range append(list.Items, *one) {
			shown = append(shown, pod.Name)
		}
	}
	r.get(r.path("default"), accept("application/json"))
	if want := []string{"o1", "o2", "o2"}; !slices.Equal(shown, want) {
		t.Errorf("etcd shows %v, want %v", shown, want)
	}
}
