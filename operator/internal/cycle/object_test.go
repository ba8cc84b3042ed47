package cycle

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// object reads JSON as an object of the API.
func object(text string) map[string]any {
	var o map[string]any
	if err := utiljson.Unmarshal([]byte(text), &o); err != nil {
		panic(text + ": " + err.Error())
	}
	return o
}

// clone copies an object through JSON, as a trip to the server does.
func clone(o map[string]any) map[string]any {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return object(string(text))
}

// apply is what the server makes of edits.
func apply(o map[string]any, e Edits, finalizer string) map[string]any {
	o = clone(o)
	for key, value := range e.Annotations {
		if value == nil {
			if m, ok := lookup(o, Path{"metadata", "annotations"}); ok {
				delete(m.(map[string]any), key)
			}
			continue
		}
		put(o, Path{"metadata", "annotations", key}, *value)
	}
	for name, value := range e.Fields {
		at := append(append(Path{}, e.Status...), name)
		if value == nil {
			o = without(o, at)
			continue
		}
		put(o, at, clone(map[string]any{"v": value})["v"])
	}
	list, _ := lookup(o, Path{"metadata", "finalizers"})
	finalizers, _ := list.([]any)
	switch e.Finalizer {
	case AddFinalizer:
		put(o, Path{"metadata", "finalizers"}, append(finalizers, finalizer))
	case RemoveFinalizer:
		var left []any
		for _, f := range finalizers {
			if f != finalizer {
				left = append(left, f)
			}
		}
		put(o, Path{"metadata", "finalizers"}, left)
	}
	return o
}

func annotationsOf(o map[string]any) map[string]any {
	value, _ := lookup(o, Path{"metadata", "annotations"})
	m, _ := value.(map[string]any)
	return maps.Clone(m)
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	prefix    = "widgets.example.com"
	finalizer = prefix + "/finalizer"
)

func spec(handlers ...Handler) Spec {
	return New(Spec{Keys: Keys{prefix}, Finalizer: finalizer, Handlers: handlers})
}

func plan(t *testing.T, s Spec, seen Seen, now time.Time) Plan {
	t.Helper()
	p, err := s.Plan(seen, now)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// handled is an object as it is after a cycle.
func handled(t *testing.T, s Spec, o map[string]any) map[string]any {
	t.Helper()
	e := s.edits()
	e.progress(s.slot(handledName, o), encode(s.desired(o)))
	return apply(o, e, s.Finalizer)
}
