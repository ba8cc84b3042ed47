package forward

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// unreadRig is a server whose responses do not end, a forwarder in front of it, and clients that do not read.
type unreadRig struct {
	*unreadResponses
	registry metrics.KubeRegistry
	address  string

	mu   sync.Mutex
	sent map[string]int // by the server, by the client's name
	gone []string       // clients whose responses have ended
}

func newUnreadRig(t *testing.T) *unreadRig {
	registry := metrics.NewKubeRegistry()
	r := &unreadRig{unreadResponses: newUnreadResponses(registry), registry: registry, sent: map[string]int{}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(r.serve))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	forward, err := newSender(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		info := &request.RequestInfo{IsResourceRequest: true, Verb: strings.TrimPrefix(q.URL.Path, "/")}
		q = q.WithContext(request.WithRequestInfo(q.Context(), info))
		forward.ServeHTTP(r.writer(w, q, func() share { return shareOf(q.Header.Get("User")) }), q)
	}))
	front.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetWriteBuffer(4 << 10) // or else the system holds megabytes
		return ctx
	}
	front.Start()
	t.Cleanup(front.Close)
	r.address = front.Listener.Addr().String()
	return r
}

func (r *unreadRig) serve(w http.ResponseWriter, q *http.Request) {
	name := q.Header.Get("Name")
	for chunk := make([]byte, 16<<10); ; {
		n, err := w.Write(chunk)
		r.mu.Lock()
		if r.sent[name] += n; err != nil {
			r.gone = append(r.gone, name)
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
	}
}

// request sends a request of a client that does not read.
func (r *unreadRig) request(t *testing.T, verb, user, name string) {
	t.Helper()
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	if _, err := fmt.Fprintf(c, "GET /%s HTTP/1.1\r\nHost: x\r\nUser: %s\r\nName: %s\r\n\r\n", verb, user,
		name); err != nil {
		t.Fatal(err)
	}
}

// shareOf returns the share of a user with one flow.
func shareOf(user string) share { return share{user, user} }

// counted returns how many responses of a flow count as unread.
func (r *unreadRig) counted(flow string) int {
	r.unreadResponses.mu.Lock()
	defer r.unreadResponses.mu.Unlock()
	return len(r.flows[shareOf(flow)])
}

func (r *unreadRig) ended() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.gone)
}

// A response that nobody reads occupies little memory, and is cut off when the client has read nothing for long.
func TestUnreadResponseEnds(t *testing.T) {
	t.Parallel()
	r := newUnreadRig(t)
	r.after, r.timeout = 50*time.Millisecond, time.Second
	r.request(t, "get", "ada", "one")
	await.True(t, "the response ends", func() bool { return slices.Equal(r.ended(), []string{"one"}) })
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := r.sent["one"]; got > 1<<20 {
		t.Errorf("the server could send %d bytes, which are in the proxy", got)
	}
	if r.all != 0 {
		t.Errorf("%d responses count as unread", r.all)
	}
}

// Of too many unread responses of one flow the oldest are cut off. Those of others, and streams that do not exceed the
// share, remain.
func TestUnreadResponsesOfOneUser(t *testing.T) {
	r := newUnreadRig(t)
	r.after, r.timeout, r.most = 10*time.Millisecond, 20*time.Millisecond, 2
	r.request(t, "watch", "ada", "other")
	await.True(t, "a response counts as unread", func() bool { return r.counted("ada") == 1 })
	const flow = "bob"
	for i := range 5 {
		r.request(t, "watch", flow, fmt.Sprint(i))
		await.True(t, "a response counts as unread", func() bool {
			return r.counted(flow) == min(i+1, 2) &&
				len(r.ended()) == max(i-1, 0)
		})
	}
	r.request(t, "list", "eve", "short")
	await.True(t, "a response that is no stream ends, and the others remain", func() bool {
		return len(r.ended()) == 4 && r.counted("ada") == 1 && r.counted(flow) == 2
	})
	if got := r.ended(); got[3] != "short" || slices.Contains(got, "other") {
		t.Errorf("%v ended", got)
	}
	want := `# HELP keepwatch_proxy_unread_responses_total [ALPHA] Forwarded responses that were cut off because their clients did not read them, by reason: timeout, or share if their user had too many.
# TYPE keepwatch_proxy_unread_responses_total counter
keepwatch_proxy_unread_responses_total{reason="share"} 3
keepwatch_proxy_unread_responses_total{reason="timeout"} 1
`
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want),
		"keepwatch_proxy_unread_responses_total"); err != nil {
		t.Error(err)
	}
}

// Of too many unread responses of all, those of the flow with most are cut off first, of the owner with most, and among
// equals the oldest. An owner of many flows has no more than its own share.
func TestUnreadResponsesOfAll(t *testing.T) {
	for _, c := range []struct {
		what             string
		mostOwned, most  int
		flows            []string // each after its owner
		cut              []int
		remaining, owned int
	}{
		{"of users", 3, 3, []string{"ada/", "bob/", "eve/", "zoe/", "zoe/"}, []int{0, 3}, 3, 3},
		{"of an owner", 3, 9, []string{"ada/", "eve/1", "eve/2", "eve/2", "eve/3", "eve/4"}, []int{1, 2}, 4, 2},
		{"of an owner of many flows", 9, 4, []string{"ada/", "ada/", "eve/1", "eve/2", "eve/3", "eve/4"}, []int{2, 3}, 4, 2},
	} {
		u := newUnreadResponses(metrics.NewKubeRegistry())
		u.mostOwned, u.mostAll = c.mostOwned, c.most
		var all []*forwardedResponse
		for _, of := range c.flows {
			w := u.writer(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), nil).(*forwardedResponse)
			all = append(all, w)
			owner, flow, _ := strings.Cut(of, "/")
			u.add(share{owner, flow}, w)
		}
		var cut []int
		for i, w := range all {
			if w.countedIn == nil {
				cut = append(cut, i)
			}
		}
		if !slices.Equal(cut, c.cut) || u.all != c.remaining || len(u.owned) != c.owned {
			t.Errorf("%s: %v are cut off, want %v; %d of %d owners remain", c.what, cut, c.cut, u.all, len(u.owned))
		}
		for _, w := range all {
			w.end()
		}
		if u.all != 0 || len(u.owned) != 0 || len(u.flows) != 0 {
			t.Errorf("%s: at the end %d, %v, %v", c.what, u.all, u.owned, u.flows)
		}
	}
}
