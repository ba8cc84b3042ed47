package field_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/source/history/field"
)

const first = `{"metadata":{"name":"web","resourceVersion":"5","labels":{"a.b/c":"1"},"managedFields":[
	{"manager":"helm","operation":"Update","apiVersion":"apps/v1","time":"2026-11-28T10:00:00Z","fieldsType":"FieldsV1",
	 "fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:a.b/c":{}}},"f:spec":{"f:replicas":{},"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{},"f:name":{}}}}}}]},
	"spec":{"replicas":1,"containers":[{"name":"web","image":"nginx:1.27"}],"args":["x","y"]}}`

const second = `{"metadata":{"name":"web","resourceVersion":"7","labels":{"a.b/c":"1"},"managedFields":[
	{"manager":"helm","operation":"Update","apiVersion":"apps/v1","time":"2026-11-28T10:00:00Z","fieldsType":"FieldsV1",
	 "fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:a.b/c":{}}},"f:spec":{"f:replicas":{}}}},
	{"manager":"kubectl-set","operation":"Update","apiVersion":"apps/v1","time":"2026-11-28T10:42:00Z","fieldsType":"FieldsV1",
	 "fieldsV1":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{"f:image":{}}}}}}]},
	"spec":{"replicas":1,"containers":[{"name":"side","image":"envoy"},{"name":"web","image":"nginx:1.28"}]}}`

func decode(t testing.TB, object string) *field.State {
	t.Helper()
	state, err := field.Decode([]byte(object))
	if err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	return state
}

func TestChanges(t *testing.T) {
	older, newer := decode(t, first), decode(t, second)
	changes, writers := field.Changes(older, newer), field.Writers(older, newer)
	var lines []string
	for _, c := range changes {
		lines = append(lines, fmt.Sprintf("%s: %s > %s by %v", c.Path, []byte(c.Old), []byte(c.New), field.WritersOf(c.Path, newer, writers)))
	}
	const want = `spec.args: ["x","y"] >  by []
spec.containers[name=side].image:  > "envoy" by []
spec.containers[name=side].name:  > "side" by []
spec.containers[name=web].image: "nginx:1.27" > "nginx:1.28" by [kubectl-set]`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if got := fmt.Sprint(writers); got != "[kubectl-set]" { // helm has lost a field
		t.Errorf("writers %s", got)
	}
	if got := fmt.Sprint(field.Owners(changes, older)); got != "[helm]" {
		t.Errorf("owners %s", got)
	}
	if changes := field.Changes(older, decode(t, first)); len(changes) > 0 {
		t.Errorf("no difference: %v", changes)
	}
}

// random returns a value with members and elements that others of it have, too.
func random(r *rand.Rand, depth int) any {
	switch n := r.IntN(8); {
	case depth > 0 && n < 3:
		m := map[string]any{}
		for range r.IntN(4) {
			m[string(rune('a'+r.IntN(4)))] = random(r, depth-1)
		}
		return m
	case depth > 0 && n < 5:
		l := []any{}
		for i := range r.IntN(3) {
			if r.IntN(2) == 0 {
				l = append(l, map[string]any{"name": fmt.Sprint("n", i), "v": random(r, depth-1)})
			} else {
				l = append(l, random(r, depth-1))
			}
		}
		return l
	case n == 5:
		return nil
	case n == 6:
		return r.IntN(3)
	}
	return []string{"", "x", "y"}[r.IntN(3)]
}

// What two objects have in common is not walked through, which is no difference.
func TestChangesOfRandomObjects(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	all := func(object []byte) map[string]string {
		fields := map[string]string{}
		for _, c := range field.Changes(nil, decode(t, string(object))) {
			fields[c.Path.String()] = string(c.New)
		}
		return fields
	}
	for range 2000 {
		var texts [2][]byte
		spec := random(r, 4)
		for i := range texts {
			object := map[string]any{"metadata": map[string]any{"name": "a", "resourceVersion": fmt.Sprint(i)}, "spec": spec,
				"status": random(r, 4)}
			if r.IntN(4) == 0 {
				object["spec"] = random(r, 4)
			}
			texts[i], _ = json.Marshal(object)
		}
		older, newer := all(texts[0]), all(texts[1])
		want := map[string]string{}
		for path, value := range newer {
			if old, ok := older[path]; !ok || old != value {
				want[path] = old + " > " + value
			}
		}
		for path, value := range older {
			if _, ok := newer[path]; !ok {
				want[path] = value + " > "
			}
		}
		got := map[string]string{}
		for _, c := range field.Changes(decode(t, string(texts[0])), decode(t, string(texts[1]))) {
			got[c.Path.String()] = fmt.Sprintf("%s > %s", c.Old, c.New)
		}
		if !maps.Equal(got, want) {
			t.Fatalf("seed %d: %s and %s: %v, want %v", seed, texts[0], texts[1], got, want)
		}
	}
}

func blame(states ...string) ([]field.Since, error) {
	var b field.Blame
	for _, state := range states {
		if err := b.Add([]byte(state)); err != nil {
			return nil, err
		}
	}
	return b.Fields(), nil
}

// TestBlame names the state since which each field has its value.
func TestBlame(t *testing.T) {
	all, err := blame(first, second, second)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, s := range all {
		lines = append(lines, fmt.Sprintf("%d %s: %s, before %s by %v", s.State, s.Path, []byte(s.Value), []byte(s.From),
			s.Managers))
	}
	const want = `0 metadata.labels['a.b/c']: "1", before  by [helm]
0 metadata.name: "web", before  by []
1 spec.containers[name=side].image: "envoy", before  by []
1 spec.containers[name=side].name: "side", before  by []
1 spec.containers[name=web].image: "nginx:1.28", before "nginx:1.27" by [kubectl-set]
0 spec.containers[name=web].name: "web", before  by [helm]
0 spec.replicas: 1, before  by [helm]`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestOddObjects compares objects whose fields are not those of the API, and refuses what is no JSON.
func TestOddObjects(t *testing.T) {
	for _, row := range []struct{ older, newer, want string }{
		{`{"a":[1,{"name":"x"}]}`, `{"a":[2,{"name":"x"}]}`, "[0]"},
		{`{"a":[{"name":"x","v":1},{"name":"x","v":2}]}`, `{"a":[{"name":"x","v":1},{"name":"x","v":3}]}`, "a[1].v"},
		{`{"a":{}}`, `{"a":{"b":1}}`, "a"},
		{`{"a":1e2}`, `{"a":100}`, "a"},
		{`{"a":12345678901234567890}`, `{"a":12345678901234567891}`, "a"},
		{`{"it's":null}`, `{"it's":false}`, `['it\'s']`},
		{`{"metadata":null}`, `{"metadata":[]}`, "metadata"},
		{`{"metadata":{"managedFields":"REDACTED"}}`, `{"metadata":{"managedFields":"REDACTED"},"x":1}`, "x"},
	} {
		older, newer := decode(t, row.older), decode(t, row.newer)
		changes := field.Changes(older, newer)
		if len(changes) == 0 || !strings.Contains(changes[0].Path.String(), row.want) {
			t.Errorf("%s, %s: %v", row.older, row.newer, changes)
		}
		for _, c := range changes {
			field.WritersOf(c.Path, newer, field.Writers(older, newer))
		}
	}
	for _, text := range []string{"", "{", `{"a":1}}`, "nothing"} {
		if _, err := field.Decode([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
		if _, err := blame(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestManagersOfAState compares the managers of a decoded state with those that encoding/json makes of it.
func TestManagersOfAState(t *testing.T) {
	for _, object := range []string{first, second, `{"metadata":{"managedFields":"REDACTED"}}`, `{"metadata":null}`,
		`{"metadata":{"generation":7,"managedFields":[{"manager":"a","operation":"Apply","subresource":"status",
			"apiVersion":"v1","time":"2026-11-28T10:00:00Z"},{"manager":"b","fieldsV1":null}]}}`} {
		var twin struct {
			Metadata struct {
				Generation    int64
				ManagedFields []field.Manager
			}
		}
		_ = json.Unmarshal([]byte(object), &twin) // of a redacted one none
		state := decode(t, object)
		if got, want := fmt.Sprintf("%#v", field.Writers(nil, state)), fmt.Sprintf("%#v", twin.Metadata.ManagedFields); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", object, got, want)
		}
		if state.Generation() != twin.Metadata.Generation {
			t.Errorf("%s: generation %d", object, state.Generation())
		}
		if writers := field.Writers(state, decode(t, object)); len(writers) > 0 {
			t.Errorf("%s: without a difference, %v have written", object, writers)
		}
	}
}

// TestOwned returns what managers have written: not what the server has set, and not status.
func TestOwned(t *testing.T) {
	const service = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop","uid":"u","resourceVersion":"5","labels":{"a":"1","b":"2"},
		"ownerReferences":[{"uid":"o"}],"managedFields":[
		{"manager":"helm","operation":"Apply","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:a":{}},"f:ownerReferences":{"k:{\"uid\":\"o\"}":{}}},
			"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:name":{}}},"f:selector":{},"f:empty":{".":{}},
			"f:set":{"v:\"x\"":{}}}}},
		{"manager":"lb","operation":"Update","subresource":"status","fieldsV1":{"f:status":{"f:loadBalancer":{}},"f:metadata":{"f:labels":{"f:b":{}}}}}]},
		"spec":{"clusterIP":"10.0.0.7","ports":[{"name":"http","port":80,"protocol":"TCP","nodePort":30000},{"port":81,"protocol":"TCP"}],
			"selector":{"app":"web"},"empty":{"x":1},"set":["x","y"]},"status":{"loadBalancer":{}}}`
	owned, err := field.Owned([]byte(service))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(owned)
	const want = `{"apiVersion":"v1","kind":"Service","metadata":{"labels":{"a":"1"},"name":"web","namespace":"shop"},` +
		`"spec":{"empty":{},"ports":[{"name":"http","port":80,"protocol":"TCP"}],"selector":{"app":"web"},"set":["x"]}}`
	if err != nil || string(got) != want {
		t.Errorf("got\n%s\nwant\n%s, %v", got, want, err)
	}
	owned, err = field.Owned(
		[]byte(`{"apiVersion":"v1","kind":"Thing","metadata":{"name":"x","uid":"u","labels":{"a":"1"}},"spec":{"n":1.0},"status":1}`))
	if got, _ := json.Marshal(owned); err != nil ||
		string(got) != `{"apiVersion":"v1","kind":"Thing","metadata":{"labels":{"a":"1"},"name":"x"},"spec":{"n":1.0}}` {
		t.Errorf("without managers: %s, %v", got, err)
	}
	for _, text := range []string{"", "[]", "1", "{"} {
		if owned, err := field.Owned([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, owned)
		}
	}
	if owned, err := field.Owned([]byte(`{"metadata":1}`)); err != nil || len(owned) != 3 {
		t.Errorf("%v, %v", owned, err)
	}
}
