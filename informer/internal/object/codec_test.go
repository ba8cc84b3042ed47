package object

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/source/kube"
)

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// rawPod is a pod on its way in, and what it is.
func rawPod(t testing.TB, encoding kube.Encoding, i int) (kube.Raw, *corev1.Pod) {
	t.Helper()
	pod := &corev1.Pod{}
	if err := json.Unmarshal([]byte(realPod(i)), pod); err != nil {
		t.Fatal(err)
	}
	raw := kube.Raw{
		Key: keepwatch.Key{Namespace: pod.Namespace, Name: pod.Name}, UID: keepwatch.UID(pod.UID), Revision: 7,
		Kind: podKind, Encoding: encoding, Body: []byte(realPod(i)),
	}
	if encoding == kube.Protobuf {
		var err error
		if raw.Body, err = pod.Marshal(); err != nil {
			t.Fatal(err)
		}
	}
	return raw, pod
}

// take decodes raw, whose body is lost then.
func take(t testing.TB, c *Codec, raw kube.Raw) *item.Item {
	t.Helper()
	raw.Body = append([]byte(nil), raw.Body...)
	o, err := c.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	clear(raw.Body)
	i := o.(*item.Item)
	if i.Key() != raw.Key || i.UID() != raw.UID || i.Revision() != raw.Revision {
		t.Errorf("item %v, UID %s, at %v of %+v", i.Key(), i.UID(), i.Revision(), raw)
	}
	return i
}

func TestDecodeTyped(t *testing.T) {
	for _, compact := range []bool{false, true} {
		c := New(&corev1.Pod{}, schema.GroupVersionKind{}, Options{Compact: compact})
		for _, encoding := range []kube.Encoding{kube.JSON, kube.Protobuf} {
			raw, want := rawPod(t, encoding, 1)
			want.TypeMeta = metav1.TypeMeta{}
			got := take(t, c, raw)
			if diff := cmp.Diff(want, got.Value()); diff != "" || got.Err() != nil {
				t.Errorf("%v, compact %v: %v %s", encoding, compact, got.Err(), diff)
			}
		}
	}
}

// A Secret's key that was written as null has no value in protobuf. It is read as the
// generated code reads it, which is what client-go's informers show.
func TestDecodeBytesWithoutValue(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string][]byte{"null": nil, "empty": {}, "some": []byte("x")}}
	body, err := secret.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.Secret{}
	if err := want.Unmarshal(body); err != nil {
		t.Fatal(err)
	}
	c := New(&corev1.Secret{}, schema.GroupVersionKind{}, Options{})
	got := take(t, c, kube.Raw{
		Key: keepwatch.Key{Name: "a"}, Revision: 7, Kind: corev1.SchemeGroupVersion.WithKind("Secret"), Encoding: kube.Protobuf, Body: body,
	})
	if diff := cmp.Diff(want, got.Value()); diff != "" || got.Err() != nil {
		t.Error(got.Err(), diff)
	}
}

// A compact object is at hand right after it came, and decoded again later; either
// way it is the same.
func TestCompactObjectsAreDecodedAgain(t *testing.T) {
	for _, encoding := range []kube.Encoding{kube.JSON, kube.Protobuf} {
		c := New(&corev1.Pod{}, schema.GroupVersionKind{}, Options{Compact: true})
		raw, want := rawPod(t, encoding, 1)
		want.TypeMeta = metav1.TypeMeta{}
		i := take(t, c, raw)
		fresh := i.Value()
		if fresh != c.compact.recent[0].value {
			t.Errorf("%v: it is decoded at once for who is told of it", encoding)
		}
		for n := range lately {
			other, _ := rawPod(t, encoding, 2+n)
			take(t, c, other)
		}
		again := i.Value()
		if again == fresh {
			t.Errorf("%v: it is still kept behind %d others", encoding, lately)
		}
		for name, got := range map[string]any{"at first": fresh, "again": again} {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%v, %s: %s", encoding, name, diff)
			}
		}
		if n := len(c.tree.interner.strings.slots) * len(slot{}); n > fewTexts {
			t.Errorf("%v: room for %d texts of values that are thrown away", encoding, n)
		}
	}
}

func TestDecodeUnstructured(t *testing.T) {
	raw, _ := rawPod(t, kube.JSON, 1)
	want := &unstructured.Unstructured{}
	if err := want.UnmarshalJSON(raw.Body); err != nil {
		t.Fatal(err)
	}
	raw.Body = []byte(strings.Replace(string(raw.Body), `"apiVersion":"v1","kind":"Pod",`, "", 1)) // as in a list
	for _, compact := range []bool{false, true} {
		for _, kind := range []schema.GroupVersionKind{{}, podKind} {
			c := New(&unstructured.Unstructured{}, kind, Options{Compact: compact})
			if c.Protobuf() {
				t.Error("unstructured objects from protobuf")
			}
			got := take(t, c, raw)
			if diff := cmp.Diff(want, got.Value()); diff != "" || got.Err() != nil {
				t.Errorf("compact %v: %v %s", compact, got.Err(), diff)
			}
		}
	}
}

func TestDecodeMetadata(t *testing.T) {
	for _, encoding := range []kube.Encoding{kube.JSON, kube.Protobuf} {
		raw, pod := rawPod(t, encoding, 1)
		partial := &metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta}
		partial.SetGroupVersionKind(podKind)
		if encoding == kube.Protobuf {
			raw.Body, _ = partial.Marshal()
		}
		got := take(t, New(&metav1.PartialObjectMetadata{}, podKind, Options{}), raw)
		if diff := cmp.Diff(partial, got.Value()); diff != "" || got.Err() != nil {
			t.Errorf("%v: %v %s", encoding, got.Err(), diff)
		}
	}
}

// TestDecodeWhatDoesNotFit keeps the place of an object that is not what is said.
func TestDecodeWhatDoesNotFit(t *testing.T) {
	c := New(&corev1.Pod{}, podKind, Options{})
	for encoding, body := range map[kube.Encoding]string{kube.JSON: `{"spec":{"nodeName":7}}`, kube.Protobuf: "\x0a\xff"} {
		raw, _ := rawPod(t, encoding, 1)
		raw.Body = []byte(body)
		if got := take(t, c, raw); got.Err() == nil || got.Value() != nil || !strings.Contains(got.Err().Error(), raw.Key.String()) {
			t.Errorf("%v: value %v, error %v", encoding, got.Value(), got.Err())
		}
	}
}

func TestProtobufIsForThoseThatHaveIt(t *testing.T) {
	for _, o := range []runtime.Object{&corev1.Pod{}, &appsv1.Deployment{}, &metav1.PartialObjectMetadata{}} {
		if !New(o, schema.GroupVersionKind{}, Options{}).Protobuf() {
			t.Errorf("%T not from protobuf", o)
		}
	}
	if New(&custom{}, schema.GroupVersionKind{}, Options{}).Protobuf() {
		t.Error("custom resources from protobuf")
	}
}

type custom struct{ crd }

func (c *custom) DeepCopyObject() runtime.Object { return c }

// TestStringsAreShared is what the memory of an informer depends on. Which strings push
// out each other is chance, by the seed of a codec: of three, one has to share well.
func TestStringsAreShared(t *testing.T) {
	const pods, most, codecs = 300, 30, 3 // copies, where chance makes the table forget
	for _, encoding := range []kube.Encoding{kube.JSON, kube.Protobuf} {
		var worst string
		for range codecs {
			if worst = copied(t, encoding, pods, most); worst == "" {
				break
			}
		}
		if worst != "" {
			t.Errorf("%v: %s", encoding, worst)
		}
	}
}

// copied says which string of so many pods a codec has more than so many copies of, or
// nothing.
func copied(t *testing.T, encoding kube.Encoding, pods, most int) (worst string) {
	c := New(&corev1.Pod{}, schema.GroupVersionKind{}, Options{})
	copies := map[string]map[*byte]bool{}
	note := func(what, s string) {
		if copies[what] == nil {
			copies[what] = map[*byte]bool{}
		}
		copies[what][unsafe.StringData(s)] = true
	}
	for n := range pods {
		raw, _ := rawPod(t, encoding, 100*n)
		i := take(t, c, raw)
		pod := i.Value().(*corev1.Pod)
		note("node", pod.Spec.NodeName)
		note("image", pod.Spec.Containers[0].Image)
		note("label", pod.Labels["app"])
		note("manager", pod.ManagedFields[2].Manager)
		note("fields", unsafe.String(unsafe.SliceData(pod.ManagedFields[2].FieldsV1.GetRawBytes()), 1))
		if unsafe.StringData(i.Key().Name) != unsafe.StringData(pod.Name) {
			t.Error("the key has a name of its own")
		}
	}
	for what, kept := range copies {
		if len(kept) > most {
			worst = fmt.Sprintf("%d pods have %d copies of a %s", pods, len(kept), what)
		}
	}
	return worst
}

func TestTableIsBounded(t *testing.T) {
	in := newTable(1<<10, 16)
	for i := range 1 << 16 {
		b := []byte(strings.Repeat(string(rune('a'+i%26)), 1+i%20) + string(rune('0'+i%7)))
		if got := in.string(b); got != string(b) {
			t.Fatalf("%q became %q", b, got)
		}
		var unique [3]byte
		unique[0], unique[1], unique[2] = byte(i), byte(i>>8), byte(i>>16)
		if got := in.string(unique[:]); got != string(unique[:]) {
			t.Fatalf("%q became %q", unique, got)
		}
	}
	if held := in.room(); held > 1<<10 {
		t.Errorf("%d strings are held", held)
	}
}

// TestCompact keeps what a transform leaves, and the newest values decoded.
func TestCompact(t *testing.T) {
	for _, encoding := range []kube.Encoding{kube.JSON, kube.Protobuf} {
		c := New(&corev1.Pod{}, schema.GroupVersionKind{}, Options{Compact: true})
		raw, want := rawPod(t, encoding, 1)
		want.TypeMeta, want.Annotations = metav1.TypeMeta{}, nil
		i := take(t, c, raw)
		if i.Size() > len(raw.Body)+1<<10 {
			t.Errorf("%d bytes for %d", i.Size(), len(raw.Body))
		}
		if i.Value() != i.Value() {
			t.Error("a value is decoded again at once")
		}
		changed := i.Value().(*corev1.Pod).DeepCopy()
		changed.Annotations = nil
		slim := i.Showing(changed)
		if diff := cmp.Diff(want, slim.Value()); diff != "" || slim.Err() != nil || slim.Size() >= i.Size() {
			t.Errorf("%v: %v %s", encoding, slim.Err(), diff)
		}
		if wrong := i.Showing("a string"); wrong.Err() == nil {
			t.Error("a string was packed")
		}
		first := i.Value()
		for n := range lately + 1 {
			other, _ := rawPod(t, encoding, 100+n)
			take(t, c, other).Value()
		}
		if i.Value() == first {
			t.Error("a value is kept for ever")
		}
	}
}

// TestWhatIsHeldIsNotMadeAgain is what a relist with nothing new costs: nothing.
func TestWhatIsHeldIsNotMadeAgain(t *testing.T) {
	for _, encoding := range []kube.Encoding{kube.JSON, kube.Protobuf} {
		c := New(&corev1.Pod{}, podKind, Options{})
		raw, _ := rawPod(t, encoding, 1)
		event := take(t, c, raw)
		c.Held = func(key keepwatch.Key) *item.Item {
			if key == raw.Key {
				return event
			}
			return nil
		}
		listed := raw
		if encoding == kube.JSON {
			listed.Body = []byte(strings.Replace(string(raw.Body), `"apiVersion":"v1","kind":"Pod",`, "", 1))
		}
		if take(t, c, listed) != event {
			t.Errorf("%v: what is held was made again", encoding)
		}
		for what, change := range map[string]func(*kube.Raw){
			"revision": func(r *kube.Raw) { r.Revision++ },
			"UID":      func(r *kube.Raw) { r.UID = "another" },
			"content": func(r *kube.Raw) {
				r.Body = []byte(strings.Replace(string(r.Body), "ClusterFirst", "ClusterLater", 1))
			},
		} {
			other := listed
			change(&other)
			if o, err := c.Decode(other); err != nil || o.(*item.Item) == event {
				t.Errorf("%v: another %s is taken for what is held: %v", encoding, what, err)
			}
		}
	}
}

// gate stands for a value whose decoding takes as long as the test wants.
type gate struct{}

var passing = func() {}

func (gate) UnmarshalJSON([]byte) error {
	passing()
	return nil
}

type gated struct {
	crd
	Gate gate `json:"gate"`
}

func (g *gated) DeepCopyObject() runtime.Object { return g }

// Two goroutines that ask for two objects decode at the same time.
func TestCompactObjectsAreDecodedInParallel(t *testing.T) {
	c := New(&gated{}, schema.GroupVersionKind{}, Options{Compact: true})
	var items []*item.Item
	for n := range lately + 2 {
		name := fmt.Sprint(n)
		items = append(items, take(t, c, kube.Raw{Key: keepwatch.Key{Name: name}, Revision: 1, Encoding: kube.JSON,
			Body: []byte(`{"metadata":{"name":"` + name + `","resourceVersion":"1"},"gate":1}`)}))
	}
	var both sync.WaitGroup
	both.Add(2)
	passing = func() {
		both.Done()
		both.Wait()
	}
	defer func() { passing = func() {} }()
	var all sync.WaitGroup
	for _, i := range items[:2] {
		all.Go(func() { i.Value() })
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		t.Fatal("one waits for the other")
	}
}

// Whoever asks, from whichever goroutine, gets what the object is; the machinery is the
// twin.
func TestCompactObjectsForManyGoroutines(t *testing.T) {
	const objects, readers = 2 * lately, 8
	for _, encoding := range []kube.Encoding{kube.JSON, kube.Protobuf} {
		c := New(&corev1.Pod{}, schema.GroupVersionKind{}, Options{Compact: true})
		var items []*item.Item
		var twins []*corev1.Pod
		for n := range objects {
			raw, twin := rawPod(t, encoding, n)
			twin.TypeMeta = metav1.TypeMeta{}
			items, twins = append(items, take(t, c, raw)), append(twins, twin)
		}
		var all sync.WaitGroup
		for r := range readers {
			all.Go(func() {
				for n := range objects {
					n = (n*(2*r+1) + r) % objects // each in an order of its own
					if got := items[n].Value(); !reflect.DeepEqual(got, twins[n]) {
						t.Errorf("%v: %s", encoding, cmp.Diff(twins[n], got))
						return
					}
				}
			})
		}
		all.Wait()
	}
}
