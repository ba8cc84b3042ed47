package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/operator/internal/write"
)

// fakeServer is a server of one resource with a status endpoint, in memory. It is for tests
// in a synctest bubble, which no real connection can enter.
type fakeServer struct {
	mu       sync.Mutex
	objects  map[string]map[string]any
	revision int
	history  []change
	changed  chan struct{} // closed at the next change
	uids     int

	// lag returns the delay of a delivery. skip reports whether a change is not delivered
	// because a newer one of the object is.
	lag  func() time.Duration
	skip func() bool
	// replica limits the history that the next source knows at first; nil for all.
	replica *replica
	// delivered is the state that the last source delivered.
	delivered map[string]*unstructured.Unstructured
	// fault is called before a patch is applied. Its error is the answer; the patch is
	// applied all the same if the answer is lost.
	fault   func(r write.Request, name string) (err error, lost bool)
	patches []patched
	// plain: the status has no endpoint of its own. looks counts the questions.
	plain bool
	looks int
}

// replica knows the first part of the history, and the rest after a delay.
type replica struct {
	seen  int
	delay time.Duration
}

// patched is a received patch.
type patched struct {
	at   time.Time
	name string
	kind types.PatchType
	body string
	code int
}

func newFakeServer() *fakeServer {
	return &fakeServer{
		objects: map[string]map[string]any{}, changed: make(chan struct{}),
		lag: func() time.Duration { return 0 }, skip: func() bool { return false },
		fault: reliable,
	}
}

func reliable(write.Request, string) (error, bool) { return nil, false }

// setFault makes the server answer patches with errors.
func (w *fakeServer) setFault(fault func(r write.Request, name string) (err error, lost bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = fault
}

// store creates or replaces an object. The caller holds w.mu.
func (w *fakeServer) store(name string, state map[string]any, typ keepwatch.ChangeType) {
	w.revision++
	about := state["metadata"].(map[string]any)
	about["resourceVersion"] = strconv.Itoa(w.revision)
	finalizers, _ := about["finalizers"].([]any)
	if about["deletionTimestamp"] != nil && len(finalizers) == 0 {
		typ = keepwatch.Deleted
	}
	if typ == keepwatch.Deleted {
		delete(w.objects, name)
	} else {
		w.objects[name] = state
	}
	w.history = append(w.history, change{typ, keepwatch.Revision(w.revision), &unstructured.Unstructured{Object: state},
		false})
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *fakeServer) create(name string, spec map[string]any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uids++
	w.store(name, map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "spec": spec,
		"metadata": map[string]any{"name": name, "namespace": "default", "uid": fmt.Sprintf("%s-%d", name, w.uids)},
	}, keepwatch.Added)
}

func (w *fakeServer) change(name, field string, value any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := w.objects[name]; old != nil {
		state := runtime.DeepCopyJSON(old)
		spec, _ := state["spec"].(map[string]any)
		spec[field] = value
		w.store(name, state, keepwatch.Modified)
	}
}

func (w *fakeServer) delete(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := w.objects[name]; old != nil {
		state := runtime.DeepCopyJSON(old)
		about := state["metadata"].(map[string]any)
		if about["deletionTimestamp"] == nil {
			about["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
			w.store(name, state, keepwatch.Modified)
		}
	}
}

func (w *fakeServer) at(name string) map[string]any {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.objects[name]; o != nil {
		return runtime.DeepCopyJSON(o)
	}
	return nil
}

func (w *fakeServer) get(_ context.Context, seen map[string]any) (*unstructured.Unstructured, error) {
	if o := w.at(text(seen, "name")); o != nil {
		return &unstructured.Unstructured{Object: o}, nil
	}
	return nil, answer(http.StatusNotFound, metav1.StatusReasonNotFound)
}

func (w *fakeServer) hasStatus(context.Context) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	return !w.plain, nil
}

func answer(code int, reason metav1.StatusReason) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
		Message: string(reason)}}
}

func (w *fakeServer) patch(ctx context.Context, seen map[string]any,
	r write.Request) (*unstructured.Unstructured, error) {
	name := text(seen, "name")
	w.mu.Lock()
	fault := w.fault
	w.mu.Unlock()
	err, lost := fault(r, name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && !lost {
		w.logPatch(name, r, err)
		return nil, err
	}
	state, failed := w.patchLocked(name, r)
	if failed != nil {
		err = failed
	}
	w.logPatch(name, r, err)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(state)}, nil
}

func (w *fakeServer) logPatch(name string, r write.Request, err error) {
	code := http.StatusOK
	if status, ok := err.(apierrors.APIStatus); ok {
		code = int(status.Status().Code)
	} else if err != nil {
		code = 0
	}
	w.patches = append(w.patches, patched{time.Now(), name, r.Type, string(r.Body), code})
}

func (w *fakeServer) patchLocked(name string, r write.Request) (map[string]any, error) {
	old := w.objects[name]
	if old == nil {
		return nil, answer(http.StatusNotFound, metav1.StatusReasonNotFound)
	}
	before, _ := json.Marshal(old)
	var after []byte
	var err error
	if r.Type == types.JSONPatchType {
		var p jsonpatch.Patch
		if p, err = jsonpatch.DecodePatch(r.Body); err == nil {
			after, err = p.Apply(before)
		}
	} else {
		after, err = jsonpatch.MergePatch(before, r.Body)
	}
	if err != nil {
		return nil, answer(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	}
	var state map[string]any
	if err := utiljson.Unmarshal(after, &state); err != nil {
		return nil, err
	}
	if r.Subresource == "" && text(state, "uid") != text(old, "uid") {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Code:    http.StatusUnprocessableEntity,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "metadata.uid"}}},
		}}
	}
	if text(state, "resourceVersion") != text(old, "resourceVersion") {
		return nil, answer(http.StatusConflict, metav1.StatusReasonConflict)
	}
	keep := "status"
	switch {
	case r.Subresource == "status" && w.plain:
		return nil, answer(http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Subresource == "status":
		keep = "spec"
	case w.plain:
		keep = "no field"
	}
	if state[keep] = old[keep]; old[keep] == nil {
		delete(state, keep)
	}
	if spec, _ := state["spec"].(map[string]any); spec != nil {
		if size, _ := spec["size"].(int64); size > 1000 {
			return nil, answer(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		}
	}
	size := 0
	annotations, _, _ := unstructured.NestedStringMap(state, "metadata", "annotations")
	for key, text := range annotations {
		size += len(key) + len(text)
	}
	if size > 256<<10 {
		return nil, answer(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	}
	if now, _ := json.Marshal(state); string(now) == string(before) {
		return old, nil
	}
	w.store(name, state, keepwatch.Modified)
	return state, nil
}

// stateAt returns the objects after a part of the history. The caller holds w.mu.
func (w *fakeServer) stateAt(at int) []map[string]any {
	there := map[string]map[string]any{}
	for _, c := range w.history[:at] {
		if there[c.object.GetName()] = c.object.Object; c.typ == keepwatch.Deleted {
			delete(there, c.object.GetName())
		}
	}
	return slices.Collect(maps.Values(there))
}

// run is the server as an operator's source.
func (w *fakeServer) run(ctx context.Context, deliver func(change), listed func()) error {
	w.mu.Lock()
	at, delay := len(w.history), time.Duration(0)
	if w.replica != nil {
		at, delay, w.replica = w.replica.seen, w.replica.delay, nil
	}
	first := w.stateAt(at)
	w.delivered = map[string]*unstructured.Unstructured{}
	delivered := w.delivered
	w.mu.Unlock()
	report := deliver
	deliver = func(c change) {
		w.mu.Lock()
		if delivered[c.object.GetName()] = c.object; c.typ == keepwatch.Deleted {
			delete(delivered, c.object.GetName())
		}
		w.mu.Unlock()
		report(c)
	}
	slices.SortFunc(first, func(a, b map[string]any) int { return int(revisionOf(a)) - int(revisionOf(b)) })
	for _, o := range first {
		deliver(change{keepwatch.Added, revisionOf(o), &unstructured.Unstructured{Object: o}, true})
	}
	listed()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for {
		w.mu.Lock()
		late, wake, lag := len(w.history) > at, w.changed, w.lag()
		w.mu.Unlock()
		if !late {
			select {
			case <-wake:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			continue
		}
		if lag > 0 {
			select {
			case <-time.After(lag):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		w.mu.Lock()
		news, skip := slices.Clone(w.history[at:]), w.skip
		w.mu.Unlock()
		at += len(news)
		for i, c := range news {
			later := slices.ContainsFunc(news[i+1:], func(n change) bool { return n.object.GetUID() == c.object.GetUID() })
			if later && c.typ == keepwatch.Modified && skip() {
				continue
			}
			deliver(c)
		}
	}
}

func (w *fakeServer) cached(key keepwatch.Key) (*unstructured.Unstructured, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u, ok := w.delivered[key.Name]
	return u, ok
}

func (w *fakeServer) healthy(time.Duration) error { return nil }

// patchesOf returns the received patches of an object.
func (w *fakeServer) patchesOf(name string) (all []patched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.patches {
		if p.name == name {
			all = append(all, p)
		}
	}
	return all
}

var widgetKind = kind{
	resource:   schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
	kind:       schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
	namespaced: true, subresource: true,
}

// runningOperator is an operator that runs on a fakeServer.
type runningOperator struct {
	*process
	engine *engine
	ended  chan error
}

// startIn runs an operator on a server until its end.
func startIn(t *testing.T, w *fakeServer, op *Operator) *runningOperator {
	t.Helper()
	return startWith(t, w, op, w)
}

func startWith(t *testing.T, f objectSource, op *Operator, api api) *runningOperator {
	t.Helper()
	return startKind(t, f, op, api, widgetKind)
}

func startKind(t *testing.T, f objectSource, op *Operator, api api, k kind) *runningOperator {
	t.Helper()
	op.set.logger = slog.New(slog.DiscardHandler)
	if err := op.check(); err != nil {
		t.Fatal(err)
	}
	p := &process{}
	p.begin(t.Context())
	r := &runningOperator{p, newEngine(op, k, api, f, newEventRecorder(nil, op.set.logger), p),
		make(chan error, 1)}
	go func() { r.ended <- p.drive([]*engine{r.engine}) }()
	return r
}

// end stops the operator, and returns Run's error.
func (r *runningOperator) end() error {
	r.stop(nil)
	err := <-r.ended
	r.cancelHandlers(nil)
	return err
}

// Thing is the type of the fakeServer's objects.
type Thing struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Size int `json:"size"`
	} `json:"spec"`
}

func spec(size int64) map[string]any { return map[string]any{"size": size} }
