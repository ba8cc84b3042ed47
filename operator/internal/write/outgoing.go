// Package write turns the changes of an object into requests, and judges their answers.
//
// # Files
//
//	outgoing.go   the pending changes of an object, and their requests
//	answer.go     the verdicts on answers
package write

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch/operator/internal/cycle"
)

// Outgoing is the pending changes of one object: the operator's and a handler's. It is stored
// until the server has accepted all of it.
type Outgoing struct {
	Edits cycle.Edits
	// Merge and Status are a handler's merge patches of the object and of its status.
	Merge, Status map[string]any
}

// Empty reports whether nothing is pending.
func (o Outgoing) Empty() bool { return o.Edits.Empty() && len(o.Merge) == 0 && len(o.Status) == 0 }

// Object is the target of the requests.
type Object struct {
	// State is the newest known state. It is not changed.
	State     map[string]any
	Finalizer string
	// Subresource: the status has an endpoint of its own, and the object's endpoint ignores
	// it.
	Subresource bool
}

// Request is one PATCH.
type Request struct {
	Type types.PatchType
	// Subresource is "status", or "" for the object itself.
	Subresource string
	Body        []byte
	// Part is the part of the outgoing that the request writes.
	Part Part
}

// Part is a part of an outgoing. The set is closed.
type Part uint8

const (
	StatusPart Part = iota + 1
	MergePart
	FinalizerPart
)

// Requests returns the PATCHes to send, in order. The progress of a handler comes after the
// handler's own changes: if only the first requests arrive, the handler is called again.
func (o Outgoing) Requests(object Object) ([]Request, error) {
	merge, status := o.mergePatches(object)
	var requests []Request
	add := func(part Part, subresource string, document map[string]any) error {
		if len(document) == 0 {
			return nil
		}
		body, err := withPrecondition(document, object.State, subresource)
		requests = append(requests, Request{types.MergePatchType, subresource, body, part})
		return err
	}
	parts := []func() error{
		func() error { return add(StatusPart, "status", status) },
		func() error { return add(MergePart, "", merge) },
	}
	if len(o.Edits.Fields) > 0 {
		slices.Reverse(parts)
	}
	for _, part := range parts {
		if err := part(); err != nil {
			return nil, fmt.Errorf("encode a patch: %w", err)
		}
	}
	if o.Edits.Finalizer != cycle.KeepFinalizer {
		body, err := o.finalizerPatch(object)
		if err != nil {
			return nil, fmt.Errorf("encode a patch: %w", err)
		}
		requests = append(requests, Request{types.JSONPatchType, "", body, FinalizerPart})
	}
	return requests, nil
}

// Without returns the outgoing after the server has accepted a part.
func (o Outgoing) Without(part Part, object Object) Outgoing {
	switch part {
	case StatusPart:
		o.Status, o.Edits.Fields = nil, nil
	case MergePart:
		if !o.joinsFinalizerPatch() {
			o.Merge, o.Edits.Annotations = nil, nil
		}
		if !object.Subresource {
			o.Status, o.Edits.Fields = nil, nil
		}
	case FinalizerPart:
		o.Edits.Finalizer, o.Edits.Annotations = cycle.KeepFinalizer, nil
	}
	return o
}

// Stored reports whether the answer to a part contains all progress that the part wrote.
func (o Outgoing) Stored(part Part, object Object, answer map[string]any) bool {
	switch {
	case part == MergePart && !o.Edits.AnnotationsStored(answer):
		return false
	case part == StatusPart, part == MergePart && !object.Subresource:
		return o.Edits.FieldsStored(answer)
	}
	return true
}

// StatusIgnored reports whether the answer to the object's own patch lacks a field of the status that the patch wrote:
// an endpoint ignores the status if that has one of its own, and a schema may not know the field.
func (o Outgoing) StatusIgnored(answer map[string]any) bool {
	status, _ := answer["status"].(map[string]any)
	return lacks(status, o.Status) || !o.Edits.FieldsStored(answer)
}

// lacks reports whether an object lacks a field that a merge patch sets, or has another value there.
func lacks(object, patch map[string]any) bool {
	for name, wanted := range patch {
		switch inner, isMap := wanted.(map[string]any); {
		case wanted == nil:
		case isMap:
			below, _ := object[name].(map[string]any)
			if len(inner) > 0 && lacks(below, inner) {
				return true
			}
		case !reflect.DeepEqual(object[name], wanted):
			return true
		}
	}
	return false
}

// mergePatches returns the merge patches of the object and of its status, without the
// annotations that the finalizer's patch removes.
func (o Outgoing) mergePatches(object Object) (merge, status map[string]any) {
	merge, status = clone(o.Merge), map[string]any{}
	if len(o.Status) > 0 {
		status["status"] = clone(o.Status)
	}
	for name, value := range o.Edits.Fields {
		put(status, append(slices.Clone(o.Edits.Status), name), value)
	}
	if !o.joinsFinalizerPatch() {
		for key, value := range o.Edits.Annotations {
			put(merge, []string{"metadata", "annotations", key}, plain(value))
		}
	}
	if !object.Subresource {
		maps.Copy(merge, status)
		status = nil
	}
	return merge, status
}

// joinsFinalizerPatch reports whether the finalizer's patch removes the annotations, which
// saves a request: nothing else is to be written on the object then.
func (o Outgoing) joinsFinalizerPatch() bool {
	if o.Edits.Finalizer == cycle.KeepFinalizer || len(o.Merge) > 0 {
		return false
	}
	for _, value := range o.Edits.Annotations {
		if value != nil {
			return false
		}
	}
	return true
}

// withPrecondition encodes a merge patch that applies to the given object only, by its UID.
// The status endpoint ignores the UID; there the patch applies to the given revision only.
func withPrecondition(document, state map[string]any, subresource string) ([]byte, error) {
	precondition := "uid"
	if subresource != "" {
		precondition = "resourceVersion"
	}
	put(document, []string{"metadata", precondition}, value(state, "metadata", precondition))
	return json.Marshal(document)
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// finalizerPatch returns a JSON patch, which can change one element of a list. It applies to
// the given revision only.
func (o Outgoing) finalizerPatch(object Object) ([]byte, error) {
	patch := []operation{{"test", "/metadata/resourceVersion", value(object.State, "metadata", "resourceVersion")}}
	if o.joinsFinalizerPatch() {
		there, _ := value(object.State, "metadata", "annotations").(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(o.Edits.Annotations)) {
			if _, ok := there[key]; ok {
				patch = append(patch, operation{Op: "remove", Path: "/metadata/annotations/" + escape.Replace(key)})
			}
		}
	}
	list, _ := value(object.State, "metadata", "finalizers").([]any)
	at := slices.Index(list, any(object.Finalizer))
	switch {
	case o.Edits.Finalizer == cycle.AddFinalizer && list == nil:
		patch = append(patch, operation{"add", "/metadata/finalizers", []any{object.Finalizer}})
	case o.Edits.Finalizer == cycle.AddFinalizer && at < 0:
		patch = append(patch, operation{"add", "/metadata/finalizers/-", object.Finalizer})
	case o.Edits.Finalizer == cycle.RemoveFinalizer && at >= 0:
		patch = append(patch, operation{Op: "remove", Path: fmt.Sprintf("/metadata/finalizers/%d", at)})
	}
	return json.Marshal(patch)
}

// escape encodes a name as a part of a JSON pointer.
var escape = strings.NewReplacer("~", "~0", "/", "~1")

func value(object map[string]any, path ...string) any {
	var v any = object
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func plain(s *string) any {
	if s == nil {
		return nil
	}
	return *s
}

func clone(m map[string]any) map[string]any {
	c := make(map[string]any, len(m))
	for key, value := range m {
		if inner, ok := value.(map[string]any); ok {
			value = clone(inner)
		}
		c[key] = value
	}
	return c
}

func put(m map[string]any, path []string, value any) {
	for _, name := range path[:len(path)-1] {
		next, ok := m[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[name] = next
		}
		m = next
	}
	m[path[len(path)-1]] = value
}
