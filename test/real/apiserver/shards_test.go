package apiserver

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/sharding"

	"github.com/keepwatch/keepwatch/test/peer"
)

// ranges returns the shard selectors that divide all objects into n shards.
func ranges(field string, n int) (all []string) {
	at := func(i int) string {
		if i == n {
			return "0x10000000000000000"
		}
		return fmt.Sprintf("0x%016x", ^uint64(0)/uint64(n)*uint64(i))
	}
	for i := range n {
		all = append(all, fmt.Sprintf("shardRange(%s, '%s', '%s')", field, at(i), at(i+1)))
	}
	return all
}

const (
	byUID       = "object.metadata.uid"
	byNamespace = "object.metadata.namespace"
)

// The media types in which lists are compared.
var lists = []string{
	"application/json", "application/vnd.kubernetes.protobuf", "application/yaml",
	"application/json;as=Table;g=meta.k8s.io;v=v1",
	"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
	"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
}

// shardedLists compares lists of shards in each encoding.
func (m *modes) shardedLists() {
	var last *corev1.ConfigMap
	for _, namespace := range []string{"a", "b", "c"} {
		m.namespace(namespace)
		for i := range 15 {
			last = m.create(namespace, fmt.Sprintf("o-%d", i), 10)
		}
	}
	all := slices.Concat(ranges(byUID, 1), ranges(byUID, 2), ranges(byUID, 5), ranges(byNamespace, 2))
	halves := ranges(byUID, 4)
	all = append(all, halves[0]+" || "+halves[2], "  "+halves[3]+"||"+halves[1]+" ", halves[0]+"||"+halves[0])
	before := m.metrics(m.ours).Sum("keepwatch_readpath_delegated_total", peer.Labels{"reason": "invalid"})
	for _, shard := range all {
		for _, accept := range lists {
			for name, options := range map[string]url.Values{
				"":          {},
				"cached":    {"resourceVersion": {"0"}},
				"exact":     {"resourceVersion": {last.ResourceVersion}, "resourceVersionMatch": {"Exact"}},
				"labels":    {"labelSelector": {"parity=1"}},
				"one":       {"fieldSelector": {"metadata.name=o-3"}},
				"namespace": {"fieldSelector": {"metadata.namespace=b"}},
			} {
				if name != "" && accept != lists[0] {
					continue
				}
				options.Set("shardSelector", shard)
				m.same(request("/api/v1/configmaps", options, accept))
			}
		}
		m.same(request("/api/v1/namespaces/a/configmaps", url.Values{"shardSelector": {shard}}, lists[0]))
		m.same(request("/apis/rbac.authorization.k8s.io/v1/clusterroles", url.Values{"shardSelector": {shard}}, lists[0]))
		m.pages(shard)
	}
	if n := m.metrics(m.ours).Sum("keepwatch_readpath_delegated_total", peer.Labels{"reason": "invalid"}) - before; n > 0 {
		m.Errorf("%v lists of shards were delegated", n)
	}
}

// pages compares the pages of a shard, whose tokens must be the same, too.
func (m *modes) pages(shard string) {
	token := ""
	for n := 0; ; n++ {
		options := url.Values{"shardSelector": {shard}, "limit": {"4"}}
		if token != "" {
			options.Set("continue", token)
		}
		answer := m.same(request("/api/v1/configmaps", options, lists[0]))
		var page corev1.ConfigMapList
		if err := json.Unmarshal(answer.Body, &page); err != nil {
			m.Fatal(err)
		}
		if token = page.Continue; token == "" {
			return
		}
		if n > 100 {
			m.Fatal("the pages do not end")
		}
	}
}

// badShards compares the answers to selectors that are wrong.
func (m *modes) badShards() {
	good := ranges(byUID, 2)[0]
	for _, shard := range []string{
		" ", "x", "1", "'a'", "shardRange()", "shardRange(object.metadata.uid)", "(",
		"shardRange(object.metadata.uid, '0x0000000000000000', ",
		good + " && " + good, "!" + good, good + " ||", good + " || x", good + " ? " + good + " : " + good,
		"shardrange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')",
		"shardRange(object.metadata.name, '0x0000000000000000', '0x8000000000000000')",
		"shardRange(metadata.uid, '0x0000000000000000', '0x8000000000000000')",
		"shardRange('object.metadata.uid', '0x0000000000000000', '0x8000000000000000')",
		"shardRange(object.metadata.uid, '0', '0x8000000000000000')",
		"shardRange(object.metadata.uid, '0x', '0x8000000000000000')",
		"shardRange(object.metadata.uid, '0x0', '0x8')",
		"shardRange(object.metadata.uid, '0x000000000000000A', '0x8000000000000000')",
		"shardRange(object.metadata.uid, '0x000000000000000g', '0x8000000000000000')",
		"shardRange(object.metadata.uid, '0x20000000000000000', '0x8000000000000000')",
		"shardRange(object.metadata.uid, '0x0000000000000000', '0x100000000000000000')",
		"shardRange(object.metadata.uid, '0x8000000000000000', '0x8000000000000000')",
		"shardRange(object.metadata.uid, '0x8000000000000000', '0x0000000000000000')",
		"shardRange(object.metadata.uid, 0, 1)", "shardRange(object.metadata.uid, 0x0000000000000000, 0x8000000000000000)",
		"shardRange(object.metadata.uid, b'0x0000000000000000', '0x8000000000000000')",
		ranges(byUID, 2)[0] + " || " + ranges(byNamespace, 2)[1],
	} {
		for _, options := range []url.Values{{}, {"watch": {"1"}}, {"limit": {"1"}}, {"resourceVersion": {"0"}},
			{"watch": {"1"}, "resourceVersion": {"1"}}} {
			options.Set("shardSelector", shard)
			if answer := m.same(request("/api/v1/configmaps", options, "application/json")); answer.Status == http.StatusOK {
				m.Errorf("%q is answered", shard)
			}
		}
	}
	m.same(request("/api/v1/configmaps", url.Values{"shardSelector": {""}}, "application/json")) // which is none
	m.same(request("/api/v1/namespaces/a/configmaps/o-1", url.Values{"shardSelector": {"x"}}, "application/json"))
}

// shardedWatches compares the events of shards: of objects that change, are deleted, and created again.
func (m *modes) shardedWatches() {
	m.namespace("watched")
	shards := slices.Concat(ranges(byUID, 1), ranges(byUID, 3), ranges(byNamespace, 2))
	begin := m.create("watched", "begin", 1)
	var streams []*bufio.Reader
	for _, shard := range shards {
		for _, s := range []*peer.Server{m.ours, m.upstream} {
			streams = append(streams, m.watch(s, url.Values{"watch": {"1"}, "resourceVersion": {begin.ResourceVersion},
				"shardSelector": {shard}, "timeoutSeconds": {"600"}}))
		}
	}
	open := func(s *peer.Server) float64 {
		return m.metrics(s).Sum("apiserver_watch_shards_total", peer.Labels{"resource": "configmaps"})
	}
	m.eventually("both servers count their watches", func() bool {
		return open(m.ours) == open(m.upstream) && open(m.ours) == float64(len(shards))
	})
	for i := range 12 {
		name := fmt.Sprintf("o-%d", i%4)
		o := m.create("watched", name, 1)
		o.Data["text"] = "y"
		if _, err := m.client.CoreV1().ConfigMaps("watched").Update(m.Context(), o, metav1.UpdateOptions{}); err != nil {
			m.Fatal(err)
		}
		if err := m.client.CoreV1().ConfigMaps("watched").Delete(m.Context(), name, metav1.DeleteOptions{}); err != nil {
			m.Fatal(err)
		}
	}
	last := m.markers(shards)
	filtered := func(s *peer.Server) float64 {
		return m.metrics(s).Sum("apiserver_watch_filtered_events_total", peer.Labels{"resource": "configmaps"})
	}
	m.eventually("both servers count the same events of other shards", func() bool {
		return filtered(m.ours) == filtered(m.upstream) && filtered(m.ours) > 0
	})
	for i, shard := range shards {
		end := last[shard]
		if end == "" {
			continue
		}
		ours, upstreams := m.eventsUpTo(streams[2*i], end), m.eventsUpTo(streams[2*i+1], end)
		if !slices.Equal(ours, upstreams) {
			m.Errorf("%s\nkeepwatch: %q\nupstream:  %q", shard, ours, upstreams)
		}
		// What has happened meanwhile is in the history of a watch that begins now.
		resumed := m.watch(m.ours, url.Values{"watch": {"1"}, "resourceVersion": {begin.ResourceVersion},
			"shardSelector": {shard}, "timeoutSeconds": {"600"}})
		if again := m.eventsUpTo(resumed, end); !slices.Equal(again, upstreams) {
			m.Errorf("%s, resumed\nkeepwatch: %q\nupstream:  %q", shard, again, upstreams)
		}
	}
}

// markers creates objects until each shard by UID has one of them, and returns the newest of each shard.
func (m *modes) markers(shards []string) map[string]string {
	newest := map[string]string{}
	for n := 0; ; n++ {
		o := m.create("watched", fmt.Sprintf("marker-%d", n), 1)
		hash := "0x" + sharding.HashField(string(o.UID))
		missing := 0
		for _, shard := range shards {
			var start, end string
			if _, err := fmt.Sscanf(shard, "shardRange(object.metadata.uid, '%18s', '%s", &start, &end); err != nil {
				continue
			}
			end = end[:len(end)-2]
			if !sharding.HexLess(hash, start) && sharding.HexLess(hash, end) {
				newest[shard] = o.ResourceVersion
			}
			if newest[shard] == "" {
				missing++
			}
		}
		if missing == 0 {
			return newest
		}
	}
}

// watch opens a watch of the namespace "watched".
func (m *modes) watch(s *peer.Server, options url.Values) *bufio.Reader {
	m.Helper()
	client, host := m.clientOf(s, "")
	q, err := http.NewRequestWithContext(m.Context(), http.MethodGet, host+"/api/v1/namespaces/watched/configmaps?"+
		options.Encode(), nil)
	if err != nil {
		m.Fatal(err)
	}
	answer, err := client.Do(q)
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		m.Fatalf("a watch is answered %s", answer.Status)
	}
	return bufio.NewReader(answer.Body)
}

// eventsUpTo reads events up to one of a revision.
func (m *modes) eventsUpTo(from *bufio.Reader, revision string) (events []string) {
	m.Helper()
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			m.Fatalf("after %d events: %v", len(events), err)
		}
		events = append(events, line)
		var e struct{ Object metav1.PartialObjectMetadata }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			m.Fatal(err)
		}
		if e.Object.ResourceVersion == revision {
			return events
		}
	}
}

// shardedDeletion deletes one shard of a collection.
func (m *modes) shardedDeletion() {
	m.namespace("deleted")
	for i := range 20 {
		m.create("deleted", fmt.Sprintf("o-%d", i), 1)
	}
	halves := ranges(byUID, 2)
	kept := m.shard("deleted", halves[1])
	err := m.client.CoreV1().ConfigMaps("deleted").DeleteCollection(m.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{ShardSelector: halves[0]})
	if err != nil {
		m.Fatal(err)
	}
	if left := m.shard("deleted", ranges(byUID, 1)[0]); !slices.Equal(left, kept) {
		m.Errorf("%v is left, want %v", left, kept)
	}
}

// shard returns the names in a shard of a namespace.
func (m *modes) shard(namespace, selector string) (names []string) {
	m.Helper()
	list, err := m.client.CoreV1().ConfigMaps(namespace).List(m.Context(), metav1.ListOptions{ShardSelector: selector})
	if err != nil {
		m.Fatal(err)
	}
	if list.ShardInfo == nil || list.ShardInfo.Selector != selector {
		m.Errorf("the list is of the shard %v", list.ShardInfo)
	}
	for _, o := range list.Items {
		names = append(names, o.Name)
	}
	return names
}
