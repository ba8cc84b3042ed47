package proxy

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// A watch that the server answers, because it resumes from before the first list, is no watcher of the cache.
func TestForwardedWatchesAreNotWatchers(t *testing.T) {
	t.Parallel()
	r := newCrowdRig(t, func(*Config) {})
	var before string
	for _, name := range []string{"a", "b"} {
		created, err := r.maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if before == "" {
			before = created.ResourceVersion
		}
	}
	get := func(query string) *http.Response {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.serve.URL+
			"/api/v1/namespaces/default/configmaps?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer own")
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { answer.Body.Close() })
		return answer
	}
	await.True(t, "the resource is followed", func() bool {
		get("resourceVersion=0").Body.Close()
		all := r.proxy.caches.followed()
		return len(all) == 1 && all[0].reader.Cache().ReadinessCheck() == nil
	})
	for _, c := range []struct {
		query    string
		watchers int
	}{{"watch=1&resourceVersion=" + before, 0}, {"watch=1&resourceVersion=0", 1}} {
		// The server answers any watch that it does not decide about in time, on a machine that is busy.
		await.State(t, c.query, func() (bool, string) {
			line, err := bufio.NewReader(get(c.query).Body).ReadString('\n')
			if err != nil || !strings.Contains(line, `"ADDED"`) {
				t.Fatalf("%s: %q, %v", c.query, line, err)
			}
			n := r.watchers()
			return n == c.watchers, fmt.Sprintf("%d watchers, want %d", n, c.watchers)
		})
	}
}
