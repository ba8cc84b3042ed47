package item

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch"
)

// widget is like the Go type of a custom resource: it has no encoding in protobuf.
type widget struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec struct {
		Parts map[string]part
		Steps []part
		Any   any
	}
}

type part struct {
	Name  string
	Args  []string
	Since *metav1.Time
	Next  *part
}

// content returns the JSON of an object of about n parts.
func content(n int) string {
	var parts, steps []string
	for i := range n {
		one := fmt.Sprintf(`{"name":"part %d","args":["first %d","second"],"since":"2026-01-02T03:04:05Z","next":{"name":"n"}}`, i, i)
		parts, steps = append(parts, fmt.Sprintf(`"p%d":%s`, i, one)), append(steps, one)
	}
	return fmt.Sprintf(`{"kind":"Widget","apiVersion":"example.com/v1","name":"w","annotations":{"a":%q},"spec":{"parts":{%s},"steps":[%s],
		"any":{"a":[1,2.5,true,null,"text"]}}}`, strings.Repeat("x", n), strings.Join(parts, ","), strings.Join(steps, ","))
}

// TestSize checks that the size of an object whose type does not report one is about what it needs in memory, within a
// factor of two: an informer keeps old states up to a number of bytes.
func TestSize(t *testing.T) {
	for name, decode := range map[string]func(text string) any{
		"unstructured": func(text string) any {
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON([]byte(text)); err != nil {
				t.Fatal(err)
			}
			return u
		},
		"typed": func(text string) any {
			w := &widget{}
			if err := json.Unmarshal([]byte(text), w); err != nil {
				t.Fatal(err)
			}
			return w
		},
	} {
		for _, parts := range []int{50, 500} {
			text := content(parts)
			objects := make([]any, 500/parts+4)
			before := heap()
			for i := range objects {
				objects[i] = decode(text)
			}
			used := (heap() - before) / len(objects)
			size := New(keepwatch.Key{Name: "w"}, "u", 1, objects[0]).Size()
			t.Logf("%s, %d bytes of JSON: %d bytes in memory, estimated %d", name, len(text), used, size)
			if size < used/2 || size > 2*used+structure {
				t.Errorf("%s, %d bytes of JSON: %d bytes in memory, and the estimate is %d", name, len(text), used, size)
			}
			runtime.KeepAlive(objects)
		}
	}
}

func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestSizeOfAnyValue measures values that no API has: a client's ListerWatcher decides what an object is.
func TestSizeOfAnyValue(t *testing.T) {
	type loop struct{ One, Two *loop }
	itself := &loop{}
	itself.One, itself.Two = itself, itself
	for name, value := range map[string]any{
		"nil": nil, "a number": 1, "text": "a", "itself": itself, "a function": func() {}, "a channel": make(chan int),
		"a time": time.Now(), "an array": [2]any{1, "a"}, "a nil pointer": (*widget)(nil),
	} {
		if size := New(keepwatch.Key{Name: "w"}, "u", 1, value).Size(); size < structure {
			t.Errorf("%s: %d", name, size)
		}
	}
}

// TestSizeIsMeasuredOnce changes a value after it was measured, as a handler may: its size stays, and is not read from
// the value again. What a value has in private is never read: a lock of its own may guard it.
func TestSizeIsMeasuredOnce(t *testing.T) {
	large := map[string]any{"a": strings.Repeat("x", 10_000)}
	value := map[string]any{}
	i := New(keepwatch.Key{Name: "w"}, "u", 1, value).Measured()
	before := i.Size()
	value["a"] = large
	if after := i.Size(); after != before {
		t.Errorf("%d bytes, and %d after a change", before, after)
	}
	if shown := i.Showing(large).Measured().Size(); shown < 10_000 {
		t.Errorf("another value of the same item: %d bytes", shown)
	}
	type lazy struct {
		Name string
		lazy map[string]any
	}
	if size := New(keepwatch.Key{Name: "w"}, "u", 1, &lazy{"w", large}).Size(); size > 2*structure {
		t.Errorf("with private fields: %d bytes", size)
	}
}
