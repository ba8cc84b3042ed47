package apiserver

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/test/peer"
)

// modeMetrics are the metrics that only one of the modes has, with the reasons. A name that ends in * is
// a prefix.
var modeMetrics = map[string]string{
	"keepwatch_*": "the read path's, and those of our storages",

	"apiserver_cache_list_*":                           "lists from upstream's watch cache",
	"apiserver_watch_events_dispatch_duration_seconds": "the queues of upstream's watch cache",
	"watch_cache_capacity*":                            "the size of upstream's window, in events; ours is bounded by bytes",
	"etcd_bookmark_*":                                  "bookmarks of the etcd watches of upstream's watch cache",
	"apiserver_storage_consistency_checks_total":       "checks of upstream's watch cache, the first five minutes after its start",
	"apiserver_storage_events_received_total":          "events of the etcd watches of upstream's watch cache",
	"apiserver_storage_list_*":                         "lists by etcd3, which fills upstream's watch cache; ours is filled by source/etcd",
}

// rareMetrics are those of what need not happen: one of the servers may have them, on a busy machine.
var rareMetrics = []string{
	"apiserver_flowcontrol_rejected_requests_total", "apiserver_request_aborts_total",
	"apiserver_request_post_timeout_total", "apiserver_request_terminations_total",
	"apiserver_terminated_watchers_total", "apiserver_watch_cache_initialization_errors_total",
	"etcd_request_errors_total", "rest_client_request_retries_total",
}

// metricNames compares the names of the metrics of both servers, after the same load.
func (m *modes) metricNames() {
	for _, s := range []*peer.Server{m.ours, m.upstream} {
		m.load(s)
	}
	ours, upstreams := m.metrics(m.ours), m.metrics(m.upstream)
	for _, name := range slices.Sorted(maps.Keys(upstreams)) {
		if _, ok := ours[name]; !ok && !mayBeOfOne(name) {
			m.Errorf("only upstream has %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		if _, ok := upstreams[name]; !ok && !mayBeOfOne(name) {
			m.Errorf("only keepwatch has %s", name)
		}
	}
	for _, name := range []string{"apiserver_resource_objects", "apiserver_watch_list_duration_seconds",
		"etcd_request_duration_seconds", "etcd_lease_object_counts"} {
		if ours[name] == nil {
			m.Errorf("keepwatch has no %s", name)
		}
	}
}

// load makes a server count what the other one has counted: an allocation of an address, a lease, and
// watches with initial events. The lease is an event's: a server writes events by itself only when the
// controller that repairs addresses sees a Service before its IPAddress.
func (m *modes) load(s *peer.Server) {
	m.Helper()
	client, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		m.Fatal(err)
	}
	_, err = client.CoreV1().Services("watched").Create(m.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		m.Fatal(err)
	}
	_, err = client.CoreV1().Events("watched").Create(m.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e-"}, InvolvedObject: corev1.ObjectReference{Namespace: "watched"},
	}, metav1.CreateOptions{})
	if err != nil {
		m.Fatal(err)
	}
	for _, options := range []url.Values{
		{"resourceVersion": {"0"}}, {"sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"},
			"allowWatchBookmarks": {"true"}},
	} {
		options.Set("watch", "1")
		if _, err := m.watch(s, options).ReadString('\n'); err != nil {
			m.Fatal(err)
		}
	}
}

// mayBeOfOne reports whether only one of the servers may have a metric.
func mayBeOfOne(name string) bool {
	for pattern := range modeMetrics {
		if prefix, ok := strings.CutSuffix(pattern, "*"); name == pattern || ok && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains(rareMetrics, name)
}
