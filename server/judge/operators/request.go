package operators

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

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
	kept     bool // of a deletion: without it, the object would have stayed
	among    int  // of a deletion: the objects with names like this that the operator had and this is one of
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

// refused records a request that the operator's roles do not allow.
func (t *traffic) refused(q *http.Request, status int) {
	by, known := request.UserFrom(q.Context())
	info, ok := request.RequestInfoFrom(q.Context())
	if status != http.StatusForbidden || !known || !ok || by.GetName() != t.user {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if isWrite(info.Verb) && !isNoise(info.APIGroup, info.Resource) {
		t.actions++
	} else {
		t.reads++
	}
	t.add(&Request{Place: placeOf(info, info.Name), Status: status, refused: true})
}

// maxBody is Kubernetes' bound for the body of a request, and a little more.
const maxBody = 4 << 20

func (t *traffic) write(w http.ResponseWriter, q *http.Request, next http.Handler, info *request.RequestInfo) {
	body, err := io.ReadAll(io.LimitReader(q.Body, maxBody))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	q.Body = io.NopCloser(bytes.NewReader(body))
	if isTrial(q, info.Verb, body) {
		t.read()
		t.enter()
		defer t.leave(false)
		next.ServeHTTP(w, q)
		return
	}
	name, prefix := info.Name, ""
	if info.Verb == "create" && info.Subresource == "" {
		name, prefix = nameIn(body, q.Header.Get("Content-Type"))
	}
	x := exchange{t: t, w: w, q: q, next: next}
	var fault *disturbance
	x.record, fault = t.arrive(info, name, prefix)
	defer t.leave(true)
	t.decides(func(of Place) bool { return of.key() == x.record.key() })
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
	place := placeOf(info, name)
	if name == "" && prefix != "" {
		p := generated(place, prefix)
		if place.Name = p.of.Name; !slices.ContainsFunc(t.names, p.isSame) {
			t.names = append(t.names, p)
		}
	}
	place.Name = anyName(t.names, place)
	place.Step = t.step
	if t.counts[place]++; t.past != nil || t.late != nil {
		t.again[place]++
	}
	place.Nth = t.counts[place]
	r := &Request{Place: place, ofPast: t.past != nil}
	t.add(r)
	if t.fault != nil && t.fault.waitsFor(place) {
		return r, t.fault
	}
	return r, nil
}

// patterns returns those of random names.
func (t *traffic) patterns() []namePattern {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.names)
}

// maxRequests bounds the record of a run.
const maxRequests = 20_000

// add adds to the record. t.mu is locked.
func (t *traffic) add(r *Request) {
	r.Instance, r.After = t.instance, time.Since(t.began)
	if r.Step == 0 {
		r.Step = t.step
	}
	if len(t.requests) == maxRequests {
		t.dropped++
		return
	}
	t.requests = append(t.requests, r)
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

// ownNames returns the names of what the operator has created, of those with a key.
func (t *traffic) ownNames(key string) map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.own[key])
}

// deleted records that the operator has deleted an object. Before that, it had created the objects of own, and those of
// kept would have stayed: somebody else has deleted the others.
func (t *traffic) deleted(r *Request, name string, own, kept map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.kept = kept[name]
	now := t.own[r.key()]
	maps.DeleteFunc(now, func(name string, _ bool) bool { return own[name] && !kept[name] })
	if now[name] {
		r.among = len(now)
		delete(now, name)
	}
}

// wrote records the object that a write has resulted in.
func (t *traffic) wrote(r *Request, o *unstructured.Unstructured) {
	content := contentOf(o)
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Status == http.StatusCreated && isPattern(r.Name) {
		if t.own[r.key()] == nil {
			t.own[r.key()] = map[string]bool{}
		}
		t.own[r.key()][o.GetName()] = true
	}
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
	if t.dropped > 0 {
		last := all[len(all)-1]
		last = Request{Instance: last.Instance, After: last.After, Place: Place{Step: last.Step},
			Note: fmt.Sprintf("%d more writes are not recorded", t.dropped)}
		all = append(all, last)
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

// isTrial reports whether a write is a dry run: nothing changes. A deletion may say so in its body.
func isTrial(q *http.Request, verb string, body []byte) bool {
	if q.URL.Query().Get("dryRun") != "" {
		return true
	}
	if verb != "delete" && verb != "deletecollection" {
		return false
	}
	var options metav1.DeleteOptions
	if strings.Contains(q.Header.Get("Content-Type"), "protobuf") {
		var message runtime.Unknown
		head := []byte("k8s\x00")
		if !bytes.HasPrefix(body, head) || message.Unmarshal(body[len(head):]) != nil ||
			options.Unmarshal(message.Raw) != nil {
			return false
		}
	} else if json.Unmarshal(body, &options) != nil {
		return false
	}
	return len(options.DryRun) > 0
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

func infoOf(q *http.Request) *request.RequestInfo {
	info, _ := request.RequestInfoFrom(q.Context())
	return info
}
