package object

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
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
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/source/kube"
)

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// rawPod returns the i-th pod as a source returns it, and decoded.
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

// decode decodes raw. It then clears the body, which a source reuses.
func decode(t testing.TB, c *Codec, raw kube.Raw) *item.Item {
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
			got := decode(t, c, raw)
			if diff := cmp.Diff(want, got.Value()); diff != "" || got.Err() != nil {
				t.Errorf("%v, compact %v: %v %s", encoding, compact, got.Err(), diff)
			}
		}
	}
}

// An object without a UID has that of its source, so that it is cached as others are.
func TestDecodeWithoutUID(t *testing.T) {
	c := New(&corev1.Pod{}, schema.GroupVersionKind{}, Options{})
	raw := kube.Raw{Key: keepwatch.Key{Namespace: "ns", Name: "a"}, UID: "derived", Revision: 7, Kind: podKind,
		Body: []byte(`{"metadata":{"namespace":"ns","name":"a","resourceVersion":"7"}}`)}
	first := decode(t, c, raw)
	c.Cached = func(keepwatch.Key) *item.Item { return first }
	if again := decode(t, c, raw); again != first {
		t.Error("an object that did not change is decoded again")
	}
}

// A Secret's key that was written as null has no value in protobuf. It is read as the
// generated code reads it, which is what client-go's informers show.
func TestDecodeBytesWithoutValue(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string][]byte{"null": nil, "empty": {},
		"some": []byte("x")}}
	body, err := secret.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.Secret{}
	if err := want.Unmarshal(body); err != nil {
		t.Fatal(err)
	}
	c := New(&corev1.Secret{}, schema.GroupVersionKind{}, Options{})
	got := decode(t, c, kube.Raw{
		Key: keepwatch.Key{Name: "a"}, Revision: 7, Kind: corev1.SchemeGroupVersion.WithKind("Secret"),
		Encoding: kube.Protobuf, Body: body,
	})
	if diff := cmp.Diff(want, got.Value()); diff != "" || got.Err() != nil {
		t.Error(got.Err(), diff)
	}
}

// The value of a compact object is cached first and decoded again later. Both values are equal.
func TestCompactObjectsAreDecodedAgain(t *testing.T) {
	for _, encoding := range []kube.Encoding{kube.JSON, kube.Protobuf} {
		c := New(&corev1.Pod{}, schema.GroupVersionKind{}, Options{Compact: true})
		raw, want := rawPod(t, encoding, 1)
		want.TypeMeta = metav1.TypeMeta{}
		i := decode(t, c, raw)
		fresh := i.Value()
		if fresh != c.lazy.recent[0].value {
			t.Errorf("%v: the value is not cached for the handlers of the change", encoding)
		}
		for n := range recentValues {
			other, _ := rawPod(t, encoding, 2+n)
			decode(t, c, other)
		}
		again := i.Value()
		if again == fresh {
			t.Errorf("%v: the value is still cached after %d others", encoding, recentValues)
		}
		for name, got := range map[string]any{"at first": fresh, "again": again} {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%v, %s: %s", encoding, name, diff)
			}
		}
		if n := c.json.interner.strings.Len(); n > maxStringsCompact {
			t.Errorf("%v: the interner stores %d strings of values that are dropped", encoding, n)
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
				t.Error("the codec of unstructured objects accepts protobuf")
			}
			got := decode(t, c, raw)
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
		got := decode(t, New(&metav1.PartialObjectMetadata{}, podKind, Options{}), raw)
		if diff := cmp.Diff(partial, got.Value()); diff != "" || got.Err() != nil {
			t.Errorf("%v: %v %s", encoding, got.Err(), diff)
		}
	}
}

// An object that does not fit its type becomes a rejected item with its key.
func TestRejectsMismatches(t *testing.T) {
	c := New(&corev1.Pod{}, podKind, Options{})
	for encoding, body := range map[kube.Encoding]string{kube.JSON: `{"spec":{"nodeName":7}}`, kube.Protobuf: "\x0a\xff"} {
		raw, _ := rawPod(t, encoding, 1)
		raw.Body = []byte(body)
		if got := decode(t, c, raw); got.Err() == nil || got.Value() != nil || !strings.Contains(got.Err().Error(),
			raw.Key.String()) {
			t.Errorf("%v: value %v, error %v", encoding, got.Value(), got.Err())
		}
	}
}

func TestProtobufNeedsTags(t *testing.T) {
	for _, o := range []runtime.Object{&corev1.Pod{}, &appsv1.Deployment{}, &metav1.PartialObjectMetadata{}} {
		if !New(o, schema.GroupVersionKind{}, Options{}).Protobuf() {
			t.Errorf("%T: no protobuf", o)
		}
	}
	if New(&custom{}, schema.GroupVersionKind{}, Options{}).Protobuf() {
		t.Error("the codec of a custom resource accepts protobuf")
	}
}

type custom struct{ crd }

func (c *custom) DeepCopyObject() runtime.Object { return c }

// The memory of an informer depends on shared strings.
func TestStringsAreShared(t *testing.T) {
	const pods, most = 300, 1
	for _, encoding := range []kube.Encoding{kube.JSON, kube.Protobuf} {
		if worst := copied(t, encoding, pods, most); worst != "" {
			t.Errorf("%v: %s", encoding, worst)
		}
	}
}

// fieldSet returns a string with the text of a field set in it, not in a copy. From v0.38 on k8s.io has strings there.
func fieldSet(f *metav1.FieldsV1) string {
	if raw := reflect.ValueOf(f).Elem().FieldByName("Raw"); raw.IsValid() {
		return unsafe.String(unsafe.SliceData(raw.Bytes()), 1)
	}
	return any(f).(interface{ GetRawString() string }).GetRawString()
}

// copied returns which string of a number of pods a codec has more copies of than most, or nothing.
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
		i := decode(t, c, raw)
		pod := i.Value().(*corev1.Pod)
		note("node", pod.Spec.NodeName)
		note("image", pod.Spec.Containers[0].Image)
		note("label", pod.Labels["app"])
		note("manager", pod.ManagedFields[2].Manager)
		note("fields", fieldSet(pod.ManagedFields[2].FieldsV1))
		if unsafe.StringData(i.Key().Name) != unsafe.StringData(pod.Name) {
			t.Error("the key does not share the name of the object")
		}
	}
	for what, found := range copies {
		if len(found) > most {
			worst = fmt.Sprintf("%d pods have %d copies of a %s", pods, len(found), what)
		}
	}
	return worst
}

// A field set that cannot be decoded is an error each time, and not only when it is new to the interner.
func TestRejectsFieldSetsAgain(t *testing.T) {
	raw, _ := rawPod(t, kube.JSON, 1)
	raw.Body = []byte(`{"metadata":{"managedFields":[{"fieldsV1":{"f:a":1e400}}]}}`)
	untyped := New(&unstructured.Unstructured{}, podKind, Options{})
	message := kube.Raw{Key: raw.Key, UID: raw.UID, Revision: raw.Revision, Kind: podKind, Encoding: kube.Protobuf,
		// metadata, managedFields, fieldsV1, a cut length
		Body: []byte("\x0a\x07" + "\x8a\x01\x04" + "\x3a\x02" + "\x0a\xff")}
	typed := New(&corev1.Pod{}, podKind, Options{})
	for range 2 {
		if got := decode(t, untyped, raw); got.Err() == nil {
			t.Error("JSON: no error")
		}
		if got := decode(t, typed, message); got.Err() == nil {
			t.Error("protobuf: no error")
		}
	}
}

// A compact informer stores the result of a transform, and caches the newest values.
func TestCompact(t *testing.T) {
	for _, encoding := range []kube.Encoding{kube.JSON, kube.Protobuf} {
		c := New(&corev1.Pod{}, schema.GroupVersionKind{}, Options{Compact: true})
		raw, want := rawPod(t, encoding, 1)
		want.TypeMeta, want.Annotations = metav1.TypeMeta{}, nil
		i := decode(t, c, raw)
		if i.Size() > len(raw.Body)+1<<10 {
			t.Errorf("%d bytes for %d", i.Size(), len(raw.Body))
		}
		if i.Value() != i.Value() {
			t.Error("a value is decoded twice in a row")
		}
		changed := i.Value().(*corev1.Pod).DeepCopy()
		changed.Annotations = nil
		slim := i.Showing(changed)
		if diff := cmp.Diff(want, slim.Value()); diff != "" || slim.Err() != nil || slim.Size() >= i.Size() {
			t.Errorf("%v: %v %s", encoding, slim.Err(), diff)
		}
		if wrong := i.Showing("a string"); wrong.Err() == nil {
			t.Error("a string is stored in the place of an object")
		}
		first := i.Value()
		for n := range recentValues + 1 {
			other, _ := rawPod(t, encoding, 100+n)
			decode(t, c, other).Value()
		}
		if i.Value() == first {
			t.Error("a value is cached after newer ones")
		}
	}
}

// A relist does not decode unchanged objects.
func TestUnchangedObjectsAreNotDecoded(t *testing.T) {
	for _, encoding := range []kube.Encoding{kube.JSON, kube.Protobuf} {
		c := New(&corev1.Pod{}, podKind, Options{})
		raw, _ := rawPod(t, encoding, 1)
		event := decode(t, c, raw)
		c.Cached = func(key keepwatch.Key) *item.Item {
			if key == raw.Key {
				return event
			}
			return nil
		}
		listed := raw
		if encoding == kube.JSON {
			listed.Body = []byte(strings.Replace(string(raw.Body), `"apiVersion":"v1","kind":"Pod",`, "", 1))
		}
		if decode(t, c, listed) != event {
			t.Errorf("%v: an unchanged object is decoded", encoding)
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
				t.Errorf("%v: an object with another %s is not decoded: %v", encoding, what, err)
			}
		}
	}
}

// gate is a value whose decoding calls onDecode.
type gate struct{}

var onDecode = func() {}

func (gate) UnmarshalJSON([]byte) error {
	onDecode()
	return nil
}

type gated struct {
	crd
	Gate gate `json:"gate"`
}

func (g *gated) DeepCopyObject() runtime.Object { return g }

// Two goroutines that read two objects decode at the same time.
func TestCompactObjectsAreDecodedInParallel(t *testing.T) {
	c := New(&gated{}, schema.GroupVersionKind{}, Options{Compact: true})
	var items []*item.Item
	for n := range recentValues + 2 {
		name := fmt.Sprint(n)
		items = append(items, decode(t, c, kube.Raw{Key: keepwatch.Key{Name: name}, Revision: 1, Encoding: kube.JSON,
			Body: []byte(`{"metadata":{"name":"` + name + `","resourceVersion":"1"},"gate":1}`)}))
	}
	var both sync.WaitGroup
	both.Add(2)
	onDecode = func() {
		both.Done()
		both.Wait()
	}
	defer func() { onDecode = func() {} }()
	var all sync.WaitGroup
	for _, i := range items[:2] {
		all.Go(func() { i.Value() })
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	await.Receive(t, "no goroutine waits for another", done)
}

// Goroutines that read at the same time get values equal to the API machinery's.
func TestCompactObjectsForManyGoroutines(t *testing.T) {
	const objects, readers = 2 * recentValues, 8
	for _, encoding := range []kube.Encoding{kube.JSON, kube.Protobuf} {
		c := New(&corev1.Pod{}, schema.GroupVersionKind{}, Options{Compact: true})
		var items []*item.Item
		var twins []*corev1.Pod
		for n := range objects {
			raw, twin := rawPod(t, encoding, n)
			twin.TypeMeta = metav1.TypeMeta{}
			items, twins = append(items, decode(t, c, raw)), append(twins, twin)
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
