package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// newWaitingRig returns a rig whose proxy runs, with another firstListWait.
func newWaitingRig(t *testing.T, wait time.Duration) *crowdRig {
	r := newCrowdRig(t, func(*Config) {})
	c := r.proxy.caches
	await.True(t, "the proxy runs", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.firstListWait = wait
		return c.running != nil
	})
	return r
}

// forwarded returns how many requests were forwarded for a reason.
func (r *crowdRig) forwarded(why reason) (n float64) {
	r.Helper()
	families, err := r.proxy.registry.Gather()
	if err != nil {
		r.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if family.GetName() == "keepwatch_proxy_forwarded_total" && label.GetName() == "reason" &&
					label.GetValue() == string(why) {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// fetch reads a path.
func (r *crowdRig) fetch(path, accept string) (code int, body string) {
	r.Helper()
	q, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.serve.URL+path, nil)
	if err != nil {
		r.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer own")
	q.Header.Set("Accept", accept)
	answer, err := r.serve.Client().Do(q)
	if err != nil {
		r.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		r.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// The first read of a resource waits for its first list, in each encoding, and is answered from memory. A list that
// takes longer than the bound is not waited for, and neither is any by a consistent read, which the server answers as
// fast.
func TestFirstReadWaits(t *testing.T) {
	for _, test := range []struct {
		name, query string
		wait        time.Duration
		waits       bool
	}{
		{"a list", "resourceVersion=0", time.Hour, true},
		{"too long", "resourceVersion=0", 0, false},
		{"a consistent list", "", time.Hour, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newWaitingRig(t, test.wait)
			r.write("a", "x")
			for i, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
				await.True(t, "the request is allowed", func() bool { // reviews fail on a machine that is busy
					code, body := r.fetch("/api/v1/namespaces/default/configmaps?"+test.query, accept)
					if code != http.StatusOK || i == 0 && !strings.Contains(body, `"text":"x"`) {
						t.Errorf("%d: %s", code, body)
					}
					return r.proxy.Status().Saved["list"] > uint64(i) || r.forwarded(reasonNotReady) > float64(i)
				})
				if n := r.forwarded(reasonNotReady); (n == 0) != test.waits {
					t.Errorf("%s: %v lists are forwarded before the first list is complete", accept, n)
				}
			}
		})
	}
}

// Reads wait no longer for a resource that the server does not have.
func TestFirstReadOfNothing(t *testing.T) {
	t.Parallel()
	r := newWaitingRig(t, time.Hour)
	if code, body := r.fetch("/api/v1/podz?resourceVersion=0", "application/json"); code != http.StatusNotFound {
		t.Errorf("%d: %s", code, body)
	}
}

// A watch of a shard that memory cannot answer is not left to a server that would send the objects of all shards. The
// server's errors are passed on. A resource that may not be cached is the server's.
func TestWatchesOfShards(t *testing.T) {
	t.Parallel()
	const half = "/api/v1/configmaps?watch=1&timeoutSeconds=1&shardSelector=" +
		"shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')"
	cached := newCrowdRig(t, func(*Config) {})
	cached.write("one", "text")
	await.True(t, "the resource is cached", cached.cached)
	none, err := ParseSelection(nil, []string{"configmaps"})
	if err != nil {
		t.Fatal(err)
	}
	uncached := newCrowdRig(t, func(c *Config) { c.Cached = none })
	for _, test := range []struct {
		name string
		of   *crowdRig
		path string
		code int
	}{
		{"answered from memory", cached, half, http.StatusOK},
		{"with a timeout that the server judges", cached, half + "&timeout=900ms", http.StatusServiceUnavailable},
		{"with an error of the server", cached, half + "&timeout=900ms&fieldSelector=spec.none%3D1", http.StatusBadRequest},
		{"of a resource that is not cached", uncached, half, http.StatusOK},
	} {
		answer, err := test.of.get(t.Context(), test.path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != test.code ||
			(answer.Header.Get("Retry-After") != "") != (test.code == http.StatusServiceUnavailable) {
			t.Errorf("%s: %s, Retry-After %q", test.name, answer.Status, answer.Header.Get("Retry-After"))
		}
	}
}
