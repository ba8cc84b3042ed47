package operators

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/server/routine"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// traffic is what passes between the operator and its server: a record of its writes, the disturbance, and whether the
// operator is quiet. It stands behind authentication and authorization.
type traffic struct {
	user   string
	groups []string
	admin  *rest.Config

	mu       sync.Mutex
	began    time.Time
	step     int
	instance int
	requests []*Request
	counts   map[Place]int          // the writes of a place without Nth
	prefixes []string               // of generated names
	contents map[types.UID][]string // what the operator has written to each object, see restores
	touched  map[schema.GroupVersionResource]bool
	watches  map[*openWatch]struct{}
	inFlight int
	actions  int // see activity
	reads    int
	unseen   int64
	pause    chan struct{}
	past     *pastReads
	late     *delay
	miss     *miss     // nil if none is awaited
	kill     func()    // the instance that runs
	dying    bool      // the next request kills the instance
	answer   time.Time // when it was answered what it should receive before that
	fault    *disturbance
}

// Request is a write of the operator, or what the judge did to it.
type Request struct {
	Place
	// Instance counts the starts of the operator.
	Instance int `json:"instance"`
	// Status is the HTTP status of the answer, or zero if there was none.
	Status int `json:"status,omitempty"`
	// Note says what the judge did, here or instead of a request.
	Note string `json:"note,omitempty"`
	// After is the time since the start of the run.
	After time.Duration `json:"afterNanoseconds"`

	refused  bool // by authorization
	ofPast   bool // cached reads were answered from an earlier state
	restores bool // the object is again what it was before the operator's last write to it
}

type openWatch struct {
	resource string
	cancel   context.CancelFunc
	aborted  bool
	ofPast   bool
}

func newTraffic(user string, groups ...string) *traffic {
	return &traffic{
		user: user, groups: groups, began: time.Now(),
		counts: map[Place]int{}, touched: map[schema.GroupVersionResource]bool{}, watches: map[*openWatch]struct{}{},
		contents: map[types.UID][]string{},
	}
}

// isNoise reports whether writes of a resource are no progress: they repeat while nothing changes.
func isNoise(group, resource string) bool {
	switch group {
	case "coordination.k8s.io", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io":
		return true
	}
	return group == "" && resource == "events"
}

func isWrite(verb string) bool {
	switch verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

func (t *traffic) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		info, ok := request.RequestInfoFrom(q.Context())
		by, known := request.UserFrom(q.Context())
		if !ok || !known {
			next.ServeHTTP(w, q)
			return
		}
		if isWrite(info.Verb) && isNoise(info.APIGroup, info.Resource) {
			defer func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				t.unseen++
			}()
		}
		if by.GetName() != t.user {
			next.ServeHTTP(w, q)
			return
		}
		t.wait(q.Context())
		t.dieIfDying()
		if sender := q.Header.Get(instanceHeader); sender != "" && !t.runs(sender) {
			panic(http.ErrAbortHandler)
		}
		switch {
		case !info.IsResourceRequest:
			t.read()
			next.ServeHTTP(w, q)
		case info.Verb == "watch":
			t.watch(t.noticing(w, q), q, next)
		case isWrite(info.Verb) && !isNoise(info.APIGroup, info.Resource):
			t.write(w, q, next, info)
		default:
			t.read()
			t.enter()
			defer t.leave(false)
			if past := t.pastFor(q); past != nil {
				past.ServeHTTP(w, q)
				return
			}
			next.ServeHTTP(t.noticing(w, q), q)
		}
	})
}

// refused records a request that the operator's roles do not allow.
func (t *traffic) refused(q *http.Request, status int) {
	by, known := request.UserFrom(q.Context())
	info, ok := request.RequestInfoFrom(q.Context())
	if status != http.StatusForbidden || !known || !ok || by.GetName() != t.user {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(&Request{Place: placeOf(info, info.Name), Status: status, refused: true})
}

// wait waits while the operator is cut off.
func (t *traffic) wait(ctx context.Context) {
	t.mu.Lock()
	pause := t.pause
	t.mu.Unlock()
	if pause == nil {
		return
	}
	select {
	case <-pause:
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	}
}

// dieIfDying kills an instance whose last write was answered, before it asks anything else.
func (t *traffic) dieIfDying() {
	t.mu.Lock()
	dying, kill := t.dying, t.kill
	t.mu.Unlock()
	if dying {
		kill()
		panic(http.ErrAbortHandler)
	}
}

func (t *traffic) enter() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inFlight++
}

func (t *traffic) leave(active bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inFlight--; active {
		t.actions++
	}
}

func (t *traffic) read() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads++
}

// watch serves a watch that can be cut. The handler may return with a task that serves it.
func (t *traffic) watch(w http.ResponseWriter, q *http.Request, next http.Handler) {
	ctx, cancel := context.WithCancel(q.Context())
	open := &openWatch{resource: placeOf(infoOf(q), "").Resource, cancel: cancel}
	past := t.pastFor(q)
	t.mu.Lock()
	open.ofPast = past != nil
	t.watches[open] = struct{}{}
	t.mu.Unlock()
	context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.watches, open)
	})
	if past != nil {
		next = past
	}
	end := func() {
		defer cancel()
		t.mu.Lock()
		aborted := open.aborted
		t.mu.Unlock()
		if aborted {
			panic(http.ErrAbortHandler)
		}
	}
	next.ServeHTTP(responsewriter.WrapForHTTP1Or2(punctual{w, ctx, t, open.resource}), q.WithContext(ctx))
	if !routine.AppendTask(q.Context(), &routine.Task{Func: end}) {
		end()
	}
}

// watched returns the resources of open watches.
func (t *traffic) watched() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]bool{}
	for open := range t.watches {
		all[open.resource] = true
	}
	return all
}

// cut breaks the watches that are open, or those of the past only.
func (t *traffic) cut(pastOnly bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for open := range t.watches {
		if !pastOnly || open.ofPast {
			open.aborted = true
			open.cancel()
		}
	}
}

// hold makes the operator's requests wait until resume, and breaks its watches.
func (t *traffic) hold() {
	t.mu.Lock()
	t.pause = make(chan struct{})
	t.mu.Unlock()
	t.cut(false)
}

// holdOthers makes the operator's other requests wait until the returned function is called: between the answer to a write and
// the end of the operator, none may be executed.
func (t *traffic) holdOthers() (resume func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pause = make(chan struct{})
	return t.resume
}

func (t *traffic) resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pause != nil {
		close(t.pause)
		t.pause = nil
	}
}

// end lets every request end, since a server waits for them.
func (t *traffic) end() {
	t.resume()
	t.deliver()
	t.cut(false)
}

// maxBody is Kubernetes' bound for the body of a request, and a little more.
const maxBody = 4 << 20

func (t *traffic) write(w http.ResponseWriter, q *http.Request, next http.Handler, info *request.RequestInfo) {
	body, err := io.ReadAll(io.LimitReader(q.Body, maxBody))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	q.Body = io.NopCloser(bytes.NewReader(body))
	name, prefix := info.Name, ""
	if info.Verb == "create" && info.Subresource == "" {
		name, prefix = nameIn(body, q.Header.Get("Content-Type"))
	}
	x := exchange{t: t, w: w, q: q, next: next}
	var fault *disturbance
	x.record, fault = t.arrive(info, name, prefix)
	defer t.leave(true)
	if fault == nil {
		x.serve()
		return
	}
	fault.meet(fault, x)
}

// arrive records a write, and returns the disturbance that waits for it.
func (t *traffic) arrive(info *request.RequestInfo, name, prefix string) (*Request, *disturbance) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inFlight++
	t.actions++
	t.touched[schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}] = true
	if name == "" && prefix != "" {
		if name = prefix + "*"; !slices.Contains(t.prefixes, prefix) {
			t.prefixes = append(t.prefixes, prefix)
		}
	}
	place := placeOf(info, t.anyName(name))
	place.Step = t.step
	t.counts[place]++
	place.Nth = t.counts[place]
	r := &Request{Place: place, ofPast: t.past != nil}
	t.add(r)
	if t.fault != nil && t.fault.waitsFor(place) {
		return r, t.fault
	}
	return r, nil
}

// suffix is the length of what the server appends to metadata.generateName.
const suffix = 5

// anyName replaces a generated name by its prefix and *.
func (t *traffic) anyName(name string) string {
	for _, prefix := range t.prefixes {
		if len(name) == len(prefix)+suffix && strings.HasPrefix(name, prefix) {
			return prefix + "*"
		}
	}
	return name
}

// maxRequests bounds the record of a run.
const maxRequests = 20_000

// add adds to the record. t.mu is locked.
func (t *traffic) add(r *Request) {
	r.Instance, r.After = t.instance, time.Since(t.began)
	if r.Step == 0 {
		r.Step = t.step
	}
	if len(t.requests) < maxRequests {
		t.requests = append(t.requests, r)
	}
}

// note records what the judge did.
func (t *traffic) note(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(&Request{Note: text})
	t.actions++
}

func (t *traffic) answered(r *Request, status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Status = status
}

// wrote records the object that a write has resulted in.
func (t *traffic) wrote(r *Request, o *unstructured.Unstructured) {
	content := contentOf(o)
	t.mu.Lock()
	defer t.mu.Unlock()
	earlier := t.contents[o.GetUID()]
	at := slices.Index(earlier, content)
	if at >= 0 && at == len(earlier)-1 {
		return
	}
	r.restores = at >= 0
	t.contents[o.GetUID()] = append(earlier, content)
}

// record returns copies of what was recorded.
func (t *traffic) record() []Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Request, len(t.requests))
	for i, r := range t.requests {
		all[i] = *r
	}
	return all
}

func (t *traffic) touch(resource schema.GroupVersionResource) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touched[resource] = true
	t.actions++
}

// touchedTypes returns the types of which the workload or the operator has written objects.
func (t *traffic) touchedTypes() map[schema.GroupVersionResource]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.touched)
}

func (t *traffic) begin(step int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.step = step
	t.actions++
}

// started makes an instance the one whose requests are served.
func (t *traffic) started(kill func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.instance++
	t.actions++
	t.kill, t.dying = kill, false
}

// nextInstance returns the number of the next instance.
func (t *traffic) nextInstance() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strconv.Itoa(t.instance + 1)
}

// runs reports whether an instance is the newest one, or about to be.
func (t *traffic) runs(number string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return number == strconv.Itoa(t.instance) || number == strconv.Itoa(t.instance+1)
}

func (t *traffic) activity() activity {
	t.mu.Lock()
	defer t.mu.Unlock()
	return activity{t.actions, t.reads, t.unseen, t.inFlight, len(t.watches), t.dying}
}

// nameIn returns the name and the generateName of an object in the body of a request.
func nameIn(body []byte, contentType string) (name, prefix string) {
	if strings.Contains(contentType, "protobuf") {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return "", ""
		}
		m, err := meta.Accessor(object)
		if err != nil {
			return "", ""
		}
		return m.GetName(), m.GetGenerateName()
	}
	var object metav1.PartialObjectMetadata
	if json.Unmarshal(body, &object) != nil {
		return "", ""
	}
	return object.Name, object.GenerateName
}

// killNow kills the instance that runs.
func (t *traffic) killNow() {
	t.mu.Lock()
	kill := t.kill
	t.mu.Unlock()
	kill()
}

// killNext kills the instance at its next request, or soon.
func (t *traffic) killNext() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dying, t.answer = true, time.Now()
}

// killLate kills the instance if it has asked nothing since the answer that it should receive.
func (t *traffic) killLate() {
	t.mu.Lock()
	kill, late := t.kill, t.dying && time.Since(t.answer) > lastAnswer
	t.mu.Unlock()
	if late {
		kill()
	}
}

func infoOf(q *http.Request) *request.RequestInfo {
	info, _ := request.RequestInfoFrom(q.Context())
	return info
}
