package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/test/peer"
)

// shard adds a shard selector to the lists and watches of config maps of a client, and counts the bytes of their
// answers. No released kube-state-metrics sends a selector.
type shard struct {
	config   *rest.Config // for the client
	received atomic.Int64
}

func (r *rig) newShard(selector string) *shard {
	r.Helper()
	to, err := url.Parse(r.url)
	r.must(err)
	s := &shard{}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Transport: r.proxied.Transport, FlushInterval: -1,
		Rewrite: func(q *httputil.ProxyRequest) {
			q.SetURL(to)
			q.Out.Header.Set("Authorization", "Bearer "+r.token) // clientcmd sends no token without TLS
			q.Out.Header.Del("Accept-Encoding")                  // bytes are counted without compression
			if strings.HasSuffix(q.In.URL.Path, "/configmaps") {
				query := q.In.URL.Query()
				query.Set("shardSelector", selector)
				q.Out.URL.RawQuery = query.Encode()
			}
		},
		ModifyResponse: func(response *http.Response) error {
			if strings.HasSuffix(response.Request.URL.Path, "/configmaps") {
				response.Body = &counted{response.Body, &s.received}
			}
			return nil
		},
	})
	r.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	s.config = &rest.Config{Host: server.URL}
	return s
}

// counted is a body whose bytes are counted.
type counted struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// infos returns the lines about config maps that a kube-state-metrics shows.
func infos(ctx context.Context, m *peer.StateMetrics) (map[string]bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.URL+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	lines := map[string]bool{}
	scanner := bufio.NewScanner(response.Body)
	for scanner.Scan() {
		if strings.HasPrefix(scanner.Text(), "kube_configmap_info{") {
			lines[scanner.Text()] = true
		}
	}
	return lines, scanner.Err()
}

// Four processes of kube-state-metrics behind the proxy, each with a shard selector, receive a quarter of the bytes
// within 2 %, and show together what one shows that reads everything from the server; before and after config maps are
// created and deleted.
func TestKubeStateMetricsInShards(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n, changes = 20_000, 20
	r.multiply(n)
	r.waitCachedAs(maps+"?resourceVersion=0", inProtobuf) // as kube-state-metrics asks: only a cache has shards
	flags := []string{"--resources", "configmaps", "--namespaces", "default"}
	whole := peer.StartStateMetrics(t, r.server.Config(), flags...)
	var shards []*shard
	var processes []*peer.StateMetrics
	for _, selector := range quarters {
		s := r.newShard(selector)
		shards, processes = append(shards, s), append(processes, peer.StartStateMetrics(t, s.config, flags...))
	}
	// same waits until one process and the four show the same n config maps, each of them in one shard.
	same := func(n int) {
		t.Helper()
		r.eventually(fmt.Sprintf("the shards show %d config maps as one process does", n), func() bool {
			want, err := infos(t.Context(), whole)
			r.must(err)
			left := len(want)
			for _, p := range processes {
				lines, err := infos(t.Context(), p)
				r.must(err)
				for line := range lines {
					if !want[line] {
						return false // in none, in two shards, or not yet in the other process
					}
					delete(want, line)
				}
			}
			return left == n && len(want) == 0
		})
	}
	same(n + 1)
	total := 0.0
	for _, s := range shards {
		total += float64(s.received.Load())
	}
	for i, s := range shards {
		share := float64(s.received.Load()) / total
		t.Logf("shard %d receives %d bytes, %.4f", i, s.received.Load(), share)
		if share < 0.25*0.98 || share > 0.25*1.02 {
			t.Errorf("shard %d receives %.4f of the bytes", i, share)
		}
	}
	client := r.admin.CoreV1().ConfigMaps("default")
	for i := range changes {
		r.must(client.Delete(t.Context(), fmt.Sprintf("map-%05d", i), metav1.DeleteOptions{}))
		_, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("new-%d", i)}},
			metav1.CreateOptions{})
		r.must(err)
	}
	_, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "last"}},
		metav1.CreateOptions{})
	r.must(err)
	same(n + 2)
}
