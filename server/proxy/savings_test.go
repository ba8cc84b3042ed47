package proxy

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/websocket"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

const (
	asJSON  = "application/json"
	asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
)

// readsOf returns the status of the reads of a resource of the group "".
func (p *Proxy) readsOf(resource string) (found ReadsStatus) {
	for _, r := range p.Status().Reads {
		if r.Group == "" && r.Resource == resource {
			return r
		}
	}
	return found
}

// count reads a path once, or until memory has answered, and checks that each time exactly one answer of a verb, with
// the bytes of its body, is counted for the config maps.
func (r *crowdRig) count(path, accept, verb string, byMemory bool) {
	r.Helper()
	// reviews fail on a machine that is busy, and such a read is forwarded
	await.State(r, verb+" "+path, func() (bool, string) {
		before := r.proxy.readsOf("configmaps")
		code, body := r.fetch(path, accept)
		if code != http.StatusOK {
			r.Fatalf("%s: %d: %s", path, code, body)
		}
		one := AnswersStatus{Bytes: int64(len(body))}
		*map[string]*uint64{"get": &one.Gets, "list": &one.Lists, "watch": &one.Watches}[verb] = 1
		memory, forwarded := before, before
		memory.Memory.add(one)
		forwarded.Forwarded.add(one)
		var got ReadsStatus
		await.State(r, "it is counted", func() (bool, string) { // after it was written
			got = r.proxy.readsOf("configmaps")
			same := func(want ReadsStatus) bool { return got.Memory == want.Memory && got.Forwarded == want.Forwarded }
			return same(memory) || same(forwarded), fmt.Sprintf("%+v and %+v, which are counted as %+v", before, one, got)
		})
		if !byMemory && got.Memory != before.Memory {
			r.Errorf("%s is counted as answered from memory: %+v", path, got)
		}
		return !byMemory || got.Memory == memory.Memory, fmt.Sprintf("%+v", got)
	})
}

// A read counts once, as answered from memory or by the server, with the bytes of its body.
func TestSavings(t *testing.T) {
	t.Parallel()
	r := newWaitingRig(t, await.Deadline)
	r.serve.Client().Transport.(*http.Transport).DisableCompression = true
	r.write("a", "x")
	const maps = "/api/v1/namespaces/default/configmaps"
	forwarded := func(why reason, accept string) {
		t.Helper()
		await.State(t, "a list is forwarded: "+string(why), func() (bool, string) {
			r.count(maps, accept, "list", false)
			got := r.proxy.readsOf("configmaps").Why
			return got[string(why)] > 0, fmt.Sprint(got)
		})
	}
	forwarded(reasonEncoding, asTable)
	if why := r.proxy.readsOf("configmaps").Why; why[string(reasonNotReady)] > 0 { // nothing is followed for a Table
		t.Errorf("Tables are forwarded because of %v", why)
	}
	r.count(maps+"?resourceVersion=0", asJSON, "list", true)
	r.count(maps+"/a?resourceVersion=0", asJSON, "get", true)
	r.count(maps+"?watch=1&resourceVersion=0&timeoutSeconds=1", asJSON, "watch", true)
	forwarded(reasonSmall, asJSON)

	before := r.proxy.readsOf("configmaps")
	r.write("b", "y") // no reads
	r.write("b", "z")
	if code, _ := r.fetch("/api/v1", asJSON); code != http.StatusOK {
		t.Errorf("discovery: %d", code)
	}
	after := r.proxy.readsOf("configmaps")
	if after.Memory != before.Memory || after.Forwarded != before.Forwarded {
		t.Errorf("writes and discovery change %+v to %+v", before, after)
	}
	if saved := r.proxy.Status().Saved; saved["list"] != after.Memory.Lists || saved["watch"] != after.Memory.Watches ||
		saved["get"] != after.Memory.Gets {
		t.Errorf("saved: %v, want %+v", saved, after.Memory)
	}
	r.testShown(after)
}

// testShown checks what the metrics and the page have of the config maps.
func (r *crowdRig) testShown(want ReadsStatus) {
	r.Helper()
	families, err := r.proxy.registry.Gather()
	if err != nil {
		r.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if strings.HasPrefix(family.GetName(), "keepwatch_proxy_read") && labels["resource"] == "configmaps" {
				got[family.GetName()+" "+labels["verb"]+" "+labels["by"]] = m.GetCounter().GetValue()
			}
		}
	}
	wanted := map[string]float64{
		"keepwatch_proxy_read_bytes_total  memory": float64(want.Memory.Bytes),
		"keepwatch_proxy_read_bytes_total  server": float64(want.Forwarded.Bytes),
	}
	for _, verb := range []string{"get", "list", "watch"} {
		wanted["keepwatch_proxy_reads_total "+verb+" memory"] = float64(want.Memory.count(verb))
		wanted["keepwatch_proxy_reads_total "+verb+" server"] = float64(want.Forwarded.count(verb))
	}
	if !maps.Equal(got, wanted) {
		r.Errorf("metrics: %v, want %v", got, wanted)
	}
	_, page := r.fetch("/keepwatch/", "text/html")
	row := fmt.Sprintf(
		`(?s)<td>configmaps</td><td>v1</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td>.*<dt>encoding</dt><dd>a Table`,
		want.Of("list"), want.Of("watch"), want.Of("get"), want.Sent())
	if !regexp.MustCompile(row).MatchString(page) {
		r.Errorf("the page has no %s:\n%s", row, page)
	}
}

// What is sent over a WebSocket counts.
func TestSavingsOverWebSocket(t *testing.T) {
	t.Parallel()
	r := newWaitingRig(t, await.Deadline)
	r.write("a", strings.Repeat("x", 1000))
	await.True(t, "a list is answered from memory", func() bool {
		r.fetch("/api/v1/configmaps?resourceVersion=0", asJSON)
		return r.proxy.readsOf("configmaps").Memory.Lists > 0
	})
	before := r.proxy.readsOf("configmaps")
	config, err := websocket.NewConfig(strings.Replace(r.serve.URL, "http", "ws", 1)+
		"/api/v1/configmaps?watch=1&resourceVersion=0", r.serve.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.Header.Set("Authorization", "Bearer own")
	connection, err := config.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	var event string
	if err := websocket.Message.Receive(connection, &event); err != nil {
		t.Fatal(err)
	}
	await.State(t, "the watch and the event are counted", func() (bool, string) {
		got := r.proxy.readsOf("configmaps")
		return got.Memory.Watches+got.Forwarded.Watches == before.Memory.Watches+before.Forwarded.Watches+1 &&
			got.Memory.Bytes+got.Forwarded.Bytes >= before.Memory.Bytes+before.Forwarded.Bytes+
				int64(len(event)), fmt.Sprintf("%+v", got)
	})
}

// Clients cannot make up resources that are counted, whatever they ask for, and a resource is not named for its
// refusals.
func TestSavingsOfNothing(t *testing.T) {
	t.Parallel()
	r := newWaitingRig(t, await.Deadline)
	const made = 30
	for i := range made {
		path := fmt.Sprintf("/api/v1/podz%d", i)
		if i%2 == 0 {
			path = fmt.Sprintf("/apis/x%d.io/v%d/podz/a?resourceVersion=0", i, i)
		}
		if code, body := r.fetch(path, asJSON); code != http.StatusNotFound {
			t.Fatalf("%s: %d: %s", path, code, body)
		}
	}
	all := r.proxy.Status().Reads
	if len(all) != 1 || all[0].Name() != otherResources || all[0].Forwarded.Lists+all[0].Forwarded.Gets != made ||
		all[0].Memory != (AnswersStatus{}) {
		t.Errorf("%+v", all)
	}
}

// The number of resources is bounded, on the page more than in the metrics, and nothing is lost of the others.
func TestSavingsAreBounded(t *testing.T) {
	s := newSavings(metrics.NewKubeRegistry())
	const n = maxCaches + 100
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			of := schema.GroupVersionResource{Group: "g", Version: "v", Resource: fmt.Sprint("r", i)}
			for range 2 {
				memory := &readCount{savings: s, resource: of, verb: "list"}
				memory.fromMemory()
				memory.fromMemory()
				memory.sent(i)
				forwarded := &readCount{savings: s, resource: of, verb: "watch"}
				forwarded.forward(reasonSmall)
				forwarded.sent(1000) // before the answer: of none
				forwarded.answer(http.StatusOK)
				forwarded.answer(0)
				forwarded.sent(1)
			}
		})
	}
	all.Wait()
	everything := s.status()
	if len(everything) != maxCaches+1 {
		t.Errorf("%d resources are counted", len(everything))
	}
	shown := heaviestReads(everything)
	if len(shown) != shownResources || shown[0].Memory.Bytes < shown[1].Memory.Bytes ||
		shown[shownResources-1].Name() != otherResources {
		t.Errorf("the page has %+v", shown)
	}
	for _, rows := range [][]ReadsStatus{everything, shown} {
		var memory, forwarded AnswersStatus
		var small uint64
		for _, r := range rows {
			memory.add(r.Memory)
			forwarded.add(r.Forwarded)
			small += r.Why[string(reasonSmall)]
		}
		if memory != (AnswersStatus{Lists: 2 * n, Bytes: n * (n - 1)}) ||
			forwarded != (AnswersStatus{Watches: 2 * n, Bytes: 2 * n}) || small != 2*n {
			t.Errorf("of %d rows: %+v, %+v, %d", len(rows), memory, forwarded, small)
		}
	}
}

// A client that lists the newest state, and one that reads as JSON what is in memory as protobuf, too, are advised.
func TestAdvice(t *testing.T) {
	t.Parallel()
	r := newCrowdRig(t, func(*Config) {})
	r.proxy.small = 0
	r.write("a", "x")
	const list = "/api/v1/namespaces/default/configmaps"
	advised := func(path, accept, want string) {
		t.Helper()
		await.State(t, path+" is advised", func() (bool, string) {
			r.fetch(path, accept)
			s := r.proxy.Status()
			got := s.Clients[0].Advice
			for what := range got {
				if s.Reasons[what] == "" {
					t.Errorf("%s is not explained", what)
				}
			}
			return slices.Equal(slices.Sorted(maps.Keys(got)), strings.Fields(want)), fmt.Sprint(got)
		})
	}
	await.State(t, "memory answers", func() (bool, string) {
		r.fetch(list+"?resourceVersion=0", asJSON)
		got := r.proxy.readsOf("configmaps")
		return got.Memory.Lists > 0, fmt.Sprint(got)
	})
	if got := r.proxy.Status().Clients[0].Advice; len(got) > 0 {
		t.Errorf("a list of any state in the only encoding is advised: %v", got)
	}
	advised(list, asJSON, "newest")
	await.State(t, "memory has protobuf, too", func() (bool, string) {
		before := r.proxy.readsOf("configmaps").Memory.Lists
		r.fetch(list+"?resourceVersion=0", "application/vnd.kubernetes.protobuf")
		after := r.proxy.readsOf("configmaps").Memory.Lists
		return after > before, fmt.Sprint(after)
	})
	advised(list+"?resourceVersion=0", asJSON, "json newest")
}

// A request that is no read is not counted, and neither is a read that the proxy itself refuses.
func TestNoReads(t *testing.T) {
	s := newSavings(metrics.NewKubeRegistry())
	read := request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "pods"}
	get, _ := http.NewRequest(http.MethodGet, "/", io.NopCloser(nil))
	head, _ := http.NewRequest(http.MethodHead, "/", io.NopCloser(nil))
	log, discovery, list := read, read, read
	log.Subresource, discovery.IsResourceRequest = "log", false
	for i, c := range []*readCount{s.begin(get, nil), s.begin(get, &log), s.begin(get, &discovery), s.begin(head, &read),
		s.begin(get, &list)} {
		if (c != nil) != (i == 4) {
			t.Errorf("request %d: %v", i, c)
		}
		c.answer(http.StatusTooManyRequests)
		c.sent(10)
	}
	if all := s.status(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}
