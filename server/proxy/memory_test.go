package proxy

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/testserver"
)

// A resource is idle a minute after its last read, and never while it is watched.
func TestIdle(t *testing.T) {
	var a activity
	now := time.Now()
	if !a.idle(now) {
		t.Error("a resource that was never read is busy")
	}
	end := a.read(true)
	if a.idle(now.Add(time.Hour)) {
		t.Error("a watched resource is idle")
	}
	end()
	if a.idle(now) || !a.idle(now.Add(time.Hour)) {
		t.Error("the end of a watch is no use of it, or lasts for ever")
	}
	a.read(false)()
	if a.idle(time.Now().Add(idleAfter / 2)) {
		t.Error("a read is forgotten at once")
	}
}

// The largest idle resource is given up first, then the largest.
func TestOrderOfGivingUp(t *testing.T) {
	want := []usage{{true, 5}, {true, 1}, {false, 100}, {false, 10}}
	got := []usage{want[2], want[1], want[3], want[0]}
	slices.SortFunc(got, func(a, b usage) int { return b.compare(a) })
	if !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
}

// The garbage of a large first list is returned to the system, and that of reading its objects, too. That of a small
// one is left to Go.
func TestGarbageIsReturned(t *testing.T) {
	t.Parallel()
	srv := testserver.New(t)
	client, err := kubernetes.NewForConfig(srv.Config())
	if err != nil {
		t.Fatal(err)
	}
	const size, most = 60_000, 100_000
	for i := range most/size + 1 {
		large := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("large-", i)},
			Data: map[string]string{"a": strings.Repeat("a", size)}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), large, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := New(Config{Server: srv.Config(), OwnToken: "own"})
	if err != nil {
		t.Fatal(err)
	}
	freed := make(chan struct{}, 10)
	p.caches.largeList, p.caches.freeMemory = most, func() { freed <- struct{}{} }
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Run(ctx)
	}()
	follow := func(resource string) *follower {
		t.Helper()
		list := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/"+resource, nil)
		info := &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: resource,
			Path: "/api/v1/" + resource}
		var f *follower
		await.State(t, "the cache of "+resource+" is ready", func() (bool, string) {
			var why reason
			f, why = p.caches.ready(list, info)
			return why == "", string(why)
		})
		return f
	}
	small := follow("namespaces")
	<-small.reader.Cache().Warmed()
	if len(freed) > 0 {
		t.Error("a small list makes the whole process collect its garbage")
	}
	follow("configmaps")
	for range 2 {
		await.Receive(t, "the garbage of a large list is collected", freed)
	}
	end()
	<-ended
	if len(freed) > 0 {
		t.Error("it is returned more often than twice")
	}
}
