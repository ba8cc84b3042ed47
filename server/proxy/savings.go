package proxy

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics"
)

// otherResources is the name of the resources that are not counted each by itself.
const otherResources = "(others)"

// ReadsStatus is how the reads of one resource were answered. A read is a get, list or watch of objects.
type ReadsStatus struct {
	// Resource is empty for all resources that are not counted each by itself: those that the server has not answered
	// for with objects, and those beyond a bound.
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	// Memory are the reads that were answered from memory, and Forwarded those that the proxy left to the server.
	Memory    AnswersStatus `json:"memory"`
	Forwarded AnswersStatus `json:"forwarded"`
	// Why has the number of forwarded reads by the reason to forward them.
	Why map[string]uint64 `json:"why,omitempty"`
	// Recent are those of the last quarter of an hour, oldest first.
	Recent []RecentReads `json:"recent,omitempty"`
}

// AnswersStatus are answers to reads. A watch counts when it begins.
type AnswersStatus struct {
	Gets    uint64 `json:"gets"`
	Lists   uint64 `json:"lists"`
	Watches uint64 `json:"watches"`
	Bytes   int64  `json:"bytes"` // of their bodies, as they were sent: compressed ones count less
}

// Of returns how many reads of a verb memory has answered, and of how many: 16 of 21. It returns a hyphen if there were
// none.
func (r ReadsStatus) Of(verb string) string {
	memory := r.Memory.count(verb)
	all := memory + r.Forwarded.count(verb)
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", memory, all)
}

// Sent returns how many bytes were sent from memory, and of how many.
func (r ReadsStatus) Sent() string {
	return fmt.Sprintf("%s of %s", Size(r.Memory.Bytes), Size(r.Memory.Bytes+r.Forwarded.Bytes))
}

func (a AnswersStatus) count(verb string) uint64 {
	return map[string]uint64{"get": a.Gets, "list": a.Lists, "watch": a.Watches}[verb]
}

// Name returns the resource's name as kubectl has it.
func (r ReadsStatus) Name() string {
	if r.Resource == "" {
		return otherResources
	}
	return ResourceStatus{Group: r.Group, Resource: r.Resource}.Name()
}

func (a *AnswersStatus) add(b AnswersStatus) {
	a.Gets, a.Lists, a.Watches, a.Bytes = a.Gets+b.Gets, a.Lists+b.Lists, a.Watches+b.Watches, a.Bytes+b.Bytes
}

// total returns the number of reads.
func (r ReadsStatus) total() uint64 {
	return r.Memory.Gets + r.Memory.Lists + r.Memory.Watches + r.Forwarded.Gets + r.Forwarded.Lists + r.Forwarded.Watches
}

// savings counts the reads by their resource, and by whether memory has answered them. It is safe for concurrent use.
type savings struct {
	metrics.BaseStableCollector
	mu  sync.Mutex
	all map[schema.GroupVersionResource]*resourceReads
}

// resourceReads are the reads of one resource.
type resourceReads struct {
	memory, forwarded readAnswers
	why               map[reason]uint64 // guarded by savings.mu
}

// readAnswers are some answers to reads.
type readAnswers struct {
	verbs map[string]uint64 // guarded by savings.mu
	bytes atomic.Int64
}

func newSavings(registry metrics.KubeRegistry) *savings {
	s := &savings{all: map[schema.GroupVersionResource]*resourceReads{}}
	registry.CustomMustRegister(s)
	return s
}

// of returns the reads of a resource. Only one that exists is counted by a name that is not counted yet: clients can
// make up thousands. s.mu is locked.
func (s *savings) of(resource schema.GroupVersionResource, exists bool) *resourceReads {
	if s.all[resource] == nil && (!exists || len(s.all) >= maxCaches) {
		resource = schema.GroupVersionResource{}
	}
	r := s.all[resource]
	if r == nil {
		r = &resourceReads{why: map[reason]uint64{}}
		r.memory.verbs, r.forwarded.verbs = map[string]uint64{}, map[string]uint64{}
		s.all[resource] = r
	}
	return r
}

// readCount counts one read, once. The goroutine that writes the response calls its methods. A nil *readCount counts
// nothing.
type readCount struct {
	savings  *savings
	resource schema.GroupVersionResource
	verb     string
	why      reason        // of a forwarded read, until the server's answer says whether the resource exists
	bytes    *atomic.Int64 // nil until the read is counted
}

// begin returns what counts a request, nil if it is no read of objects.
func (s *savings) begin(q *http.Request, info *request.RequestInfo) *readCount {
	if info == nil || !isRead(q, info) {
		return nil
	}
	return &readCount{savings: s, resource: resourceOf(info), verb: info.Verb}
}

// isRead reports whether a request reads objects.
func isRead(q *http.Request, info *request.RequestInfo) bool {
	return q.Method == http.MethodGet && info.IsResourceRequest && info.Subresource == "" &&
		(info.Verb == "get" || info.Verb == "list" || info.Verb == "watch")
}

// fromMemory counts the read as answered from memory.
func (c *readCount) fromMemory() {
	if c == nil || c.bytes != nil {
		return
	}
	c.savings.mu.Lock()
	defer c.savings.mu.Unlock()
	c.count(&c.savings.of(c.resource, true).memory)
}

// forward records that the read is forwarded, to be counted when it is answered.
func (c *readCount) forward(why reason) {
	if c != nil && c.bytes == nil {
		c.why = why
	}
}

// answer counts a read that was forwarded, given the status of its answer, zero if that is not known.
func (c *readCount) answer(status int) {
	if c == nil || c.bytes != nil || c.why == "" {
		return
	}
	c.savings.mu.Lock()
	defer c.savings.mu.Unlock()
	r := c.savings.of(c.resource, status == http.StatusOK)
	r.why[c.why]++
	c.count(&r.forwarded)
}

// count counts the read as one of some answers. c.savings.mu is locked.
func (c *readCount) count(as *readAnswers) {
	as.verbs[c.verb]++
	c.bytes = &as.bytes
}

// sent counts bytes of the response.
func (c *readCount) sent(n int) {
	if c != nil && c.bytes != nil {
		c.bytes.Add(int64(n))
	}
}

// countsAnswers returns a handler that counts what next answers from memory.
func countsAnswers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if counted := countedOf(q); counted != nil {
			counted.client.memory.Add(1)
			if a, ok := q.Context().Value(answerKey{}).(answer); ok {
				counted.client.advise(a.advice)
			}
			counted.read.fromMemory()
		}
		next.ServeHTTP(w, q)
	})
}

// status returns the reads of each resource: of those with most bytes first, and of the ones that are not counted by
// themselves last.
func (s *savings) status() []ReadsStatus {
	s.mu.Lock()
	all := make([]ReadsStatus, 0, len(s.all))
	for of, r := range s.all {
		status := ReadsStatus{Group: of.Group, Version: of.Version, Resource: of.Resource, Memory: r.memory.status(),
			Forwarded: r.forwarded.status(), Why: map[string]uint64{}}
		for why, n := range r.why {
			status.Why[string(why)] = n
		}
		all = append(all, status)
	}
	s.mu.Unlock()
	last := func(r ReadsStatus) int {
		if r.Resource == "" {
			return 1
		}
		return 0
	}
	slices.SortFunc(all, func(a, b ReadsStatus) int {
		return cmp.Or(cmp.Compare(last(a), last(b)), cmp.Compare(b.Memory.Bytes+b.Forwarded.Bytes, a.Memory.Bytes+
			a.Forwarded.Bytes),
			cmp.Compare(b.total(), a.total()), strings.Compare(a.Name(), b.Name()), strings.Compare(a.Version, b.Version))
	})
	return all
}

// status returns the answers. savings.mu is locked.
func (a *readAnswers) status() AnswersStatus {
	return AnswersStatus{a.verbs["get"], a.verbs["list"], a.verbs["watch"], a.bytes.Load()}
}

// saved returns how many reads were answered from memory, by verb.
func saved(all []ReadsStatus) map[string]uint64 {
	by := map[string]uint64{"get": 0, "list": 0, "watch": 0}
	for _, r := range all {
		for verb := range by {
			by[verb] += r.Memory.count(verb)
		}
	}
	return by
}

// heaviestReads returns the first of all resources, and what the others have together.
func heaviestReads(all []ReadsStatus) []ReadsStatus {
	if len(all) <= shownResources {
		return all
	}
	others := ReadsStatus{Why: map[string]uint64{}}
	for _, r := range all[shownResources-1:] {
		others.Memory.add(r.Memory)
		others.Forwarded.add(r.Forwarded)
		for why, n := range r.Why {
			others.Why[why] += n
		}
		others.Recent = sum(others.Recent, r.Recent)
	}
	return append(slices.Clip(all[:shownResources-1]), others)
}

// shownResources is how many resources the page has, the others being one of them.
const shownResources = 20

var (
	readsMetric = metrics.NewDesc("keepwatch_proxy_reads_total",
		"Gets, lists and watches by who answers them: memory or server. Those of resources that the server has not answered for have no name here.",
		[]string{"group", "version", "resource", "verb", "by"}, nil, metrics.ALPHA, "")
	readBytesMetric = metrics.NewDesc("keepwatch_proxy_read_bytes_total",
		"Bytes of the bodies that answered gets, lists and watches, by who answers: memory or server.",
		[]string{"group", "version", "resource", "by"}, nil, metrics.ALPHA, "")
)

// DescribeWithStability implements metrics.StableCollector.
func (*savings) DescribeWithStability(to chan<- *metrics.Desc) {
	to <- readsMetric
	to <- readBytesMetric
}

// CollectWithStability implements metrics.StableCollector.
func (s *savings) CollectWithStability(to chan<- metrics.Metric) {
	for _, r := range s.status() {
		for by, a := range map[string]AnswersStatus{"memory": r.Memory, "server": r.Forwarded} {
			for _, verb := range []string{"get", "list", "watch"} {
				to <- metrics.NewLazyConstMetric(readsMetric, metrics.CounterValue, float64(a.count(verb)), r.Group, r.Version,
					r.Resource, verb, by)
			}
			to <- metrics.NewLazyConstMetric(readBytesMetric, metrics.CounterValue, float64(a.Bytes), r.Group, r.Version,
				r.Resource, by)
		}
	}
}
