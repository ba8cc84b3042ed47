package rawwatch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/internal/eventframes"
	"github.com/keepwatch/keepwatch/test/history"
)

// event returns an object as a server sends it.
func event(name, color string, revision int) json.RawMessage {
	return fmt.Appendf(nil,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"ns1","name":%q,"uid":"uid-of-%s","resourceVersion":"%d","labels":{"color":%q}}}`,
		name, name, revision, color)
}

// written returns a write as etcd's history has it; without a color it is a deletion.
func written(t *testing.T, name, color string, revision keepwatch.Revision) check.Write {
	t.Helper()
	w := check.Write{Revision: revision, Key: keepwatch.Key{Namespace: "ns1", Name: name}}
	if color == "" {
		return w
	}
	stored := fmt.Appendf(nil, `{"metadata":{"namespace":"ns1","name":%q,"uid":"uid-of-%s","labels":{"color":%q}}}`, name,
		name, color)
	o, err := history.Parse(stored, revision)
	if err != nil {
		t.Fatal(err)
	}
	w.Object = o
	return w
}

// Each way in which a stream can be wrong is noticed, and a right one is not.
func TestWrongStreamsAreNoticed(t *testing.T) {
	h := history.Reader{Writes: []check.Write{
		written(t, "a", "red", 11), written(t, "b", "blue", 12), written(t, "b", "red", 12+1),
		written(t, "a", "blue", 14), written(t, "b", "", 15), written(t, "c", "red", 16), written(t, "d", "red", 16),
	}}
	right := []eventframes.Frame{
		{Type: "ADDED", Object: event("a", "red", 11)}, {Type: "ADDED", Object: event("b", "red", 13)},
		{Type: "DELETED", Object: event("a", "red", 14)},
		{Type: "BOOKMARK", Object: event("", "", 14)}, {Type: "DELETED", Object: event("b", "red", 15)},
		{Type: "ADDED", Object: event("c", "red", 16)}, {Type: "ADDED", Object: event("d", "red", 16)},
	}
	for name, c := range map[string]struct {
		alter func([]eventframes.Frame) []eventframes.Frame
		want  string // the violated promise; empty: none
	}{
		"right":         {func(f []eventframes.Frame) []eventframes.Frame { return f }, ""},
		"lost":          {func(f []eventframes.Frame) []eventframes.Frame { return append(f[:1:1], f[2:]...) }, "P"},
		"repeated":      {func(f []eventframes.Frame) []eventframes.Frame { return append(f[:2:2], f[1:]...) }, "P"},
		"lost deletion": {func(f []eventframes.Frame) []eventframes.Frame { return append(f[:4:4], f[5:]...) }, "P6"},
		"another content": {func(f []eventframes.Frame) []eventframes.Frame {
			f[1].Object = json.RawMessage(strings.Replace(string(f[1].Object), `"labels":{`, `"labels":{"more":"",`, 1))
			return f
		}, "P"},
		"deletion with the state after": {func(f []eventframes.Frame) []eventframes.Frame {
			f[2].Object = event("a", "blue", 14)
			return f
		}, "P10"},
		"update for an entry": {func(f []eventframes.Frame) []eventframes.Frame {
			f[1].Type = "MODIFIED"
			return f
		}, "P10"},
		"bookmark ahead": {func(f []eventframes.Frame) []eventframes.Frame {
			f[3].Object = event("", "", 15)
			return f
		}, "P9"},
		"half a revision": {func(f []eventframes.Frame) []eventframes.Frame { return f[:6] }, "P8"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &watcher{view: view{resource: configMaps, color: "red"}, cursor: 10}
			for _, f := range c.alter(slices.Clone(right)) {
				if err := w.receive(f); err != nil {
					t.Fatal(err)
				}
			}
			w.flush()
			violations := check.Judge(h.All(16), w.filter(), check.Transcript{From: 10, Records: w.records})
			if len(violations) == 0 != (c.want == "") {
				t.Fatalf("broken: %v", violations)
			}
			if c.want != "" && !strings.HasPrefix(violations[0].Promise.String(), c.want) {
				t.Errorf("want %s broken first, got %v", c.want, violations)
			}
		})
	}
}
