package operator

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/keepwatch/keepwatch/operator/internal/cycle"
)

// Cause is the reason why a handler is called. The stored progress has the same values.
type Cause string

// The causes that handlers are called for.
const (
	Created Cause = "create"
	Updated Cause = "update"
	Deleted Cause = "delete"
	Resumed Cause = "resume"
)

// Difference is a change of one field.
type Difference struct {
	Op   FieldOp
	Path FieldPath
	// Old is nil for an added field, and New for a removed one.
	Old, New any
}

// FieldOp is the kind of a change of a field. The values are closed.
type FieldOp string

const (
	FieldAdded   FieldOp = "add"
	FieldChanged FieldOp = "change"
	FieldRemoved FieldOp = "remove"
)

// FieldPath leads to a field of an object, name by name.
type FieldPath []string

// String returns the path as [OnField] and [Patch.Set] accept it: names with dots between
// them, and with a backslash before each dot that is part of a name.
func (p FieldPath) String() string { return cycle.Path(p).String() }

// Request is one call of a handler.
type Request[T metav1.Object] struct {
	// Object is the state for which the handler is called. It is the handler's own copy; to
	// change the object, use Patch.
	Object T
	// Cause is why the handler is called; empty for handlers of events, timers, daemons.
	Cause Cause
	// Old is the desired state that was handled last, without status and system metadata;
	// nil if there is none.
	Old T
	// Diff is the difference of the desired state from Old; for OnField, of that field.
	Diff []Difference
	// WatchEvent is "ADDED", "MODIFIED" or "DELETED" for handlers of events, and "" for an
	// object of the first list.
	WatchEvent string
	// Retry counts the earlier calls, and Started is when the first one was due.
	Retry   int
	Started time.Time
	// Logger carries the object and the handler.
	Logger *slog.Logger
	// Patch collects changes of the object. It is applied after the handler returns, also
	// with an error.
	Patch *Patch

	in *invocation
}

// invocation is a call of a handler, without its type.
type invocation struct {
	state    map[string]any
	cause    Cause
	old      map[string]any
	diff     []cycle.Difference
	event    string
	retry    int
	started  time.Time
	logger   *slog.Logger
	patch    *Patch
	id       string
	object   *object
	stopping <-chan struct{} // of timers and daemons
	apply    func() error    // of timers and daemons
}

// Event records a Kubernetes Event about the object. kind is "Normal" or "Warning", reason a
// word in CamelCase. Event does not wait. Repeated Events become one with a count; too many
// Events are dropped and counted.
func (r *Request[T]) Event(kind, reason, message string) {
	r.in.object.recordEvent(r.in.state, kind, reason, message)
}

// OwnerReference returns a reference that makes another object a child of this one: append
// it to the child's owner references. Kubernetes deletes the child with its owner. The
// reference is the child's controller reference, of which there can be one.
func (r *Request[T]) OwnerReference() metav1.OwnerReference {
	yes := true
	kind := r.in.object.engine.kind.kind
	return metav1.OwnerReference{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: r.Object.GetName(), UID: r.Object.GetUID(),
		Controller: &yes, BlockOwnerDeletion: &yes,
	}
}

// Result stores a value in the object's status, under the handler's id.
func (r *Request[T]) Result(value any) { r.Patch.set([]string{"status", r.in.id}, value) }

// Latest returns the newest known state of the object. Daemons need it: Object is the state
// at their start.
func (r *Request[T]) Latest() (T, error) {
	state := r.in.object.newest()
	if state == nil {
		state = r.in.state // no newer state was delivered
	}
	return decode[T](state)
}

// Stopping returns a channel that is closed when a timer or daemon should return; its
// context ends later. It returns nil for other handlers.
func (r *Request[T]) Stopping() <-chan struct{} { return r.in.stopping }

// Apply applies Patch now and empties it. It returns an error for handlers that are neither
// timers nor daemons.
func (r *Request[T]) Apply() error {
	if r.in.apply == nil {
		return fmt.Errorf("only timers and daemons apply patches themselves")
	}
	return r.in.apply()
}

func request[T metav1.Object](in *invocation) (*Request[T], error) {
	object, err := decode[T](in.state)
	if err != nil {
		return nil, err
	}
	r := &Request[T]{
		Object: object, Cause: in.cause, Diff: ownDifferences(in.diff), WatchEvent: in.event, Retry: in.retry,
		Started: in.started,
		Logger:  in.logger, Patch: in.patch, in: in,
	}
	if in.old != nil {
		if r.Old, err = decode[T](in.old); err != nil {
			return nil, fmt.Errorf("the state that was handled last: %w", err)
		}
		r.Old.SetName(object.GetName())
		r.Old.SetNamespace(object.GetNamespace())
		r.Old.SetUID(object.GetUID())
	}
	return r, nil
}

// ownDifferences copies differences for a handler: their values are shared with the
// object's state.
func ownDifferences(shared []cycle.Difference) []Difference {
	own := make([]Difference, len(shared))
	for n, d := range shared {
		own[n] = Difference{FieldOp(d.Op), FieldPath(d.Path), runtime.DeepCopyJSONValue(d.Old),
			runtime.DeepCopyJSONValue(d.New)}
	}
	return own
}

// decode returns a copy of a state as T.
func decode[T metav1.Object](state map[string]any) (object T, err error) {
	state = runtime.DeepCopyJSON(state)
	if u, ok := any(&unstructured.Unstructured{Object: state}).(T); ok {
		return u, nil
	}
	made := reflect.New(reflect.TypeFor[T]().Elem()).Interface()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(state, made); err != nil {
		return object, fmt.Errorf("decode the object to %T: %w", made, err)
	}
	return made.(T), nil
}

// decodable returns an error if objects cannot be decoded to T.
func decodable[T metav1.Object]() error {
	if t := reflect.TypeFor[T](); t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("objects are decoded to pointers to structs, like *Widget, not to %v", t)
	}
	return nil
}

// normalize converts a value to the types that JSON decodes to.
func normalize[V any](value V) (normal V, err error) {
	text, err := json.Marshal(value)
	if err != nil {
		return normal, err
	}
	return normal, utiljson.Unmarshal(text, &normal)
}
