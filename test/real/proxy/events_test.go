package proxy

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch/test/peer"
)

// The Events of one lease of etcd's end at one revision. At each revision the proxy has those that the server has, and
// a client that is cut off behind the first, the next two, the next three events and so on sees the end of them all.
func TestEventsEndTogether(t *testing.T) {
	t.Parallel()
	const n, path = 50, "/api/v1/namespaces/default/events"
	r := newRigOn(t, peer.Kubernetes(t, "--event-ttl", "20s"))
	r.token = r.server.Config().BearerToken
	r.waitCached(path + "?resourceVersion=0")
	var last *corev1.Event
	for i := range n {
		var err error
		last, err = r.admin.CoreV1().Events("default").Create(t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("event-%02d", i), Namespace: "default"},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "pod"},
		}, metav1.CreateOptions{})
		r.must(err)
	}
	list := func() (revision string, items int) {
		got := r.proxy(path)
		var l corev1.EventList
		r.must(json.Unmarshal([]byte(got.body), &l))
		if want := r.behind(path + "?resourceVersionMatch=Exact&resourceVersion=" + l.ResourceVersion); want.body != got.body {
			t.Errorf("the proxy has %d Events at %s: %s\nthe server: %s", len(l.Items), l.ResourceVersion, got.body, want.body)
		}
		return l.ResourceVersion, len(l.Items)
	}
	ended := map[string]bool{}
	revision := last.ResourceVersion
	for cut := 1; len(ended) < n && !t.Failed(); cut++ {
		stream := r.open(t.Context(), r.proxied, r.url, path+"?watch=1&resourceVersion="+revision)
		events := json.NewDecoder(stream.Body)
		for range cut {
			var e struct {
				Type   watch.EventType
				Object corev1.Event
			}
			if err := events.Decode(&e); err != nil || e.Type == watch.Error {
				t.Fatalf("a watch from %s: %s, %v, %v", revision, stream.Status, e.Type, err)
			}
			revision = e.Object.ResourceVersion
			if e.Type != watch.Deleted {
				continue
			}
			if ended[e.Object.Name] = true; len(ended) == n {
				break
			}
		}
		stream.Body.Close()
		list()
	}
	r.eventually("all Events have ended", func() bool { _, items := list(); return items == 0 })
}
