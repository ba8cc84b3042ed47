package proxy

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/testserver"
)

var crowdFlag = flag.Int("proxy.crowd", 200, "how many clients of TestWatchersThatNeverRead open a watch")

// crowdRig is a proxy in front of a test server, whose connections have small buffers.
type crowdRig struct {
	*testing.T
	server *testserver.Server
	maps   corev1client.ConfigMapInterface
	proxy  *Proxy
	serve  *httptest.Server
	open   atomic.Int64 // requests
}

func newCrowdRig(t *testing.T, edit func(*Config)) *crowdRig {
	r := &crowdRig{T: t, server: testserver.New(t)}
	client, err := kubernetes.NewForConfig(r.server.Config())
	if err != nil {
		t.Fatal(err)
	}
	r.maps = client.CoreV1().ConfigMaps("default")
	config := Config{Server: r.server.Config(), OwnToken: "own"}
	edit(&config)
	if r.proxy, err = New(config); err != nil {
		t.Fatal(err)
	}
	r.proxy.caches.memoryCheck = 50 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); r.proxy.Run(ctx) }()
	r.serve = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.open.Add(1)
		defer r.open.Add(-1)
		r.proxy.ServeHTTP(w, q)
	}))
	r.serve.Listener = smallBuffers{r.serve.Listener}
	r.serve.Start()
	t.Cleanup(func() {
		cancel()
		r.serve.CloseClientConnections()
		r.serve.Close()
		<-ended
	})
	return r
}

// smallBuffers makes the kernel hold little of what a client does not read.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(8 << 10)
	}
	return c, err
}

func (r *crowdRig) write(name, text string) {
	r.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"text": text}}
	if _, err := r.maps.Update(r.Context(), m, metav1.UpdateOptions{}); err != nil {
		if _, err = r.maps.Create(r.Context(), m, metav1.CreateOptions{}); err != nil {
			r.Fatal(err)
		}
	}
}

func (r *crowdRig) cached() bool {
	q := httptest.NewRequestWithContext(r.Context(), http.MethodGet, "/api/v1/configmaps", nil)
	_, why := r.proxy.caches.ready(q, &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1",
		Resource: "configmaps", Path: q.URL.Path})
	return why == ""
}

func (r *crowdRig) get(ctx context.Context, path string) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.serve.URL+path, nil)
	if err != nil {
		return nil, err
	}
	q.Header.Set("Authorization", "Bearer own")
	q.Header.Set("Accept", "application/json")
	return r.serve.Client().Do(q)
}

// answers waits until memory has answered a list and a watch. What the server has decided once counts while it is too
// busy to decide again.
func (r *crowdRig) answers() {
	r.Helper()
	for verb, query := range map[string]string{"list": "", "watch": "&watch=1"} {
		await.True(r, "memory answers a "+verb, func() bool {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			answer, err := r.get(ctx, "/api/v1/configmaps?resourceVersion=0"+query)
			if err != nil {
				r.Fatal(err)
			}
			answer.Body.Close()
			return r.proxy.Status().Saved[verb] > 0
		})
	}
	await.True(r, "the watch has ended", func() bool { return r.watchers() == 0 })
}

// silent opens a watch from any state and reads nothing of it. The kernel holds up to a buffer of it.
func (r *crowdRig) silent(buffer int) net.Conn {
	r.Helper()
	c, err := net.Dial("tcp", r.serve.Listener.Addr().String())
	if err == nil {
		err = c.(*net.TCPConn).SetReadBuffer(buffer)
	}
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { c.Close() })
	fmt.Fprintf(c,
		"GET /api/v1/configmaps?watch=1&resourceVersion=0&timeoutSeconds=3000 HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer own\r\nAccept: application/json\r\n\r\n")
	return c
}

// buildSchemas makes the server build its OpenAPI documents, some 14 MB, which its admission plugins ask for some
// seconds later. On a busy machine that takes longer than a request may.
func (r *crowdRig) buildSchemas() {
	r.Helper()
	client, err := kubernetes.NewForConfig(r.server.Config())
	if err != nil {
		r.Fatal(err)
	}
	await.NoError(r, "the server has built its OpenAPI documents", func() error {
		versions, err := client.Discovery().OpenAPIV3().Paths()
		if err != nil {
			return err
		}
		for path, version := range versions {
			if _, err := version.Schema("application/json"); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		return nil
	})
}

// metric returns the value of a gauge or counter of the proxy, with a label of a value if that is not "".
func (r *crowdRig) metric(name, label string) float64 {
	r.Helper()
	families, err := r.proxy.registry.Gather()
	if err != nil {
		r.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// watchers returns how many watches are open.
func (r *crowdRig) watchers() (n int) {
	for _, f := range r.proxy.caches.followed() {
		n += int(f.watchers.Load())
	}
	return n
}

// heap returns the bytes in use after a garbage collection.
func heap() uint64 {
	runtime.GC()
	return liveBytes()
}

// Watches whose clients never read cost the proxy some memory each, and others nothing: a client that reads receives
// each change, lists are answered, and a watch that is read at last arrives at the server's state.
func TestWatchersThatNeverRead(t *testing.T) {
	const objects, size, rounds = 10, 50_000, 5 // 500 kB, written 5 times before the crowd is there, and 5 times with it
	crowd := *crowdFlag
	r := newCrowdRig(t, func(*Config) {})
	text := strings.Repeat("x", size)
	for i := range objects {
		r.write(fmt.Sprint("large-", i), text)
	}
	r.answers()
	reader := newWitness(r.get, "/api/v1/configmaps", "default")
	defer reader.follow(t.Context())()
	change := func(text string) {
		for round := range rounds {
			for i := range objects {
				r.write(fmt.Sprint("large-", i), fmt.Sprint(round, text))
			}
			want := statesOf(t, r.maps)
			await.True(t, "a client that reads has the newest state", func() bool { return reader.has(want) })
		}
	}
	r.buildSchemas()
	start := heap()
	change(text + "before")
	before := heap()
	var conns []net.Conn
	late := r.silent(256 << 10)
	for range crowd - 1 {
		conns = append(conns, r.silent(8<<10))
	}
	await.True(t, "all watches are open", func() bool { return r.watchers() == crowd+1 })
	change(text + "with the crowd")
	if n := r.watchers(); n != crowd+1 {
		t.Errorf("%d watches are open, want %d", n, crowd+1)
	}
	// Of each watch a connection, its buffers, and two goroutines. package readpath lends the watches of one user 32 MiB.
	// The histories of the server and the proxy grow as they did before the crowd was there. What is pooled survives a
	// collection, and what is on its way to a client is in use for a moment: only what stays counts.
	const each, lent = 100 << 10, 32 << 20
	history, grown, used := int64(before)-int64(start), int64(0), 0.
	defer func() {
		t.Logf("the heap has grown by %d kB without the crowd, and by %d kB with it, of which %.0f kB are buffers",
			history>>10, grown>>10, used/1024)
	}()
	await.True(t, "the crowd has no more memory than its bounds", func() bool {
		grown = int64(heap()) - int64(before)
		used = r.metric("keepwatch_readpath_buffer_bytes", "")
		return used <= lent && grown <= max(history, objects*size*rounds)+int64(used)+int64(crowd)*each
	})
	response, err := r.get(t.Context(), "/api/v1/configmaps?resourceVersion=0")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if n, err := io.Copy(io.Discard, response.Body); err != nil || n < objects*size {
		t.Errorf("a list: %d bytes, %v", n, err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(late), nil)
	if err != nil {
		t.Fatal(err)
	}
	woken := newWitness(func(context.Context, string) (*http.Response, error) { return answer, nil }, "", "default")
	reading := make(chan struct{})
	go func() { defer close(reading); woken.watch(answer) }()
	begun := time.Now()
	want := statesOf(t, r.maps)
	await.True(t, "a watch that is read at last has the newest state, or has ended", func() bool {
		select {
		case <-reading:
			return true
		default:
			return woken.has(want)
		}
	})
	t.Logf("a watch that is read at last has the newest state after %v", time.Since(begun))
	if !woken.has(want) {
		t.Errorf("a watch that is read at last ends at %s, before the newest state", woken.cursor)
	}
	for _, c := range append(conns, late) {
		c.Close()
	}
	await.True(t, "the watches have ended with their clients", func() bool { return r.watchers() <= 1 })
	<-reading
}

// A hundred watches are open when the memory limit is reached: their resource is left to the server, they resume there,
// and miss nothing.
func TestMemoryLimitWithWatchers(t *testing.T) {
	const crowd, room = 100, 64 << 20
	limit := int64(float64(heap()+room) / objectsShare)
	r := newCrowdRig(t, func(c *Config) { c.MemoryLimit = limit })
	for i := range 10 {
		r.write(fmt.Sprint("small-", i), "")
	}
	r.answers()
	all := r.follow(crowd)
	for _, w := range all {
		await.True(t, "a watch is open", func() bool { return w.opened() > 0 })
	}
	if n := r.watchers(); n != crowd {
		t.Fatalf("%d watches are answered from memory", n)
	}
	used := make([]byte, 2*room)
	defer runtime.KeepAlive(used)
	runtime.GC()
	written := 0
	await.True(t, "the resource is left to the server", func() bool {
		r.write(fmt.Sprint("small-", written%10), fmt.Sprint(written))
		written++
		return !r.cached()
	})
	if err := r.maps.Delete(t.Context(), "small-3", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.write("small-4", "last")
	want := statesOf(t, r.maps)
	for _, w := range all {
		await.True(t, "a client has the newest state", func() bool { return w.has(want) })
		for _, wrong := range w.wrong {
			t.Error(wrong)
		}
		if w.listed != 1 || w.begun < 2 {
			t.Errorf("a client has listed %d times and watched %d times", w.listed, w.begun)
		}
	}
	response, err := r.get(t.Context(), "/livez")
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("/livez: %v, %v", response, err)
	}
	response.Body.Close()
}

// The watches of a resource that is left to the server end, although their clients read nothing: they would keep its
// objects in memory.
func TestGivenUpWatchesThatNeverRead(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a minute, which a client may take to read the end of a watch")
	}
	t.Parallel() // it waits
	r := newCrowdRig(t, func(*Config) {})
	for i := range 10 {
		r.write(fmt.Sprint("large-", i), strings.Repeat("x", 50_000))
	}
	r.answers()
	for range *crowdFlag {
		r.silent(8 << 10)
	}
	await.True(t, "all watches are open", func() bool { return r.watchers() == *crowdFlag })
	rest := r.proxy.caches.giveUpOne()
	if rest.drop() || rest.bytes() < 500_000 {
		t.Fatalf("%d bytes are left of the resource while its watches are open", rest.bytes())
	}
	await.True(t, "all watches have ended", func() bool { return r.open.Load() == 0 })
	if !rest.drop() || rest.bytes() != 0 {
		t.Errorf("%d bytes are left of the resource", rest.bytes())
	}
}

// follow returns clients that follow config maps until the end of the test.
func (r *crowdRig) follow(n int) (all []*witness) {
	for range n {
		w := newWitness(r.get, "/api/v1/configmaps", "default")
		r.Cleanup(w.follow(r.Context()))
		all = append(all, w)
	}
	return all
}

func (r *crowdRig) newest() string {
	r.Helper()
	list, err := r.maps.List(r.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		r.Fatal(err)
	}
	return list.ResourceVersion
}

// arrive waits until all clients have the server's state.
func (r *crowdRig) arrive(all []*witness) {
	r.Helper()
	want := statesOf(r.T, r.maps)
	for _, w := range all {
		await.True(r.T, "a client has the server's state", func() bool { return w.has(want) })
	}
}

// unread is the response to a client that does not read: it takes the header, and blocks at the first byte of the body
// until closed is.
type unread struct {
	header http.Header
	status chan<- int
	closed <-chan struct{}
}

func (u *unread) Header() http.Header { return u.header }

func (u *unread) WriteHeader(code int) { u.status <- code }

func (u *unread) Write(b []byte) (int, error) {
	<-u.closed
	return len(b), nil
}

// Large lists that the proxy has no buffers for are the server's to answer: no list is refused.
func TestBusyIsForwarded(t *testing.T) {
	t.Parallel()
	r := newCrowdRig(t, func(*Config) {})
	for i := range 3 {
		r.write(fmt.Sprint("large-", i), strings.Repeat("x", 200_000))
	}
	await.True(t, "config maps are answered from memory", r.cached)
	const lists = 600 // 64 of one user are written at a time, and 500 wait
	status, closed := make(chan int, lists), make(chan struct{})
	var asking sync.WaitGroup
	defer asking.Wait()
	defer close(closed)
	for range lists {
		asking.Go(func() {
			q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/configmaps?resourceVersion=0", nil)
			q.Header.Set("Authorization", "Bearer own")
			q.Header.Set("Accept", "application/json")
			r.proxy.ServeHTTP(&unread{http.Header{}, status, closed}, q)
		})
	}
	await.True(t, "lists are forwarded", func() bool {
		for {
			select {
			case code := <-status:
				if code != http.StatusOK {
					t.Fatalf("a list is answered %d", code)
				}
			default:
				return r.metric("keepwatch_readpath_delegated_total", "busy") > 0
			}
		}
	})
}
