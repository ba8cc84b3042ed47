package readpath

import (
	"bytes"
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

var allEncodings = []encoding{objectJSON, objectProtobuf, metadataJSON, metadataProtobuf}

func serializerFor(t *testing.T, f encoding) runtime.SerializerInfo {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType(f))
	if !ok {
		t.Fatal("no serializer for", mediaType(f))
	}
	return info
}

// encoded returns an object as an API server's codecs encode it.
func encoded(t *testing.T, o runtime.Object, gv schema.GroupVersion, f encoding) []byte {
	t.Helper()
	codecs := scheme.Codecs
	if isMetadata(f) {
		codecs, gv = metainternalversionscheme.Codecs, metav1.SchemeGroupVersion
	}
	b, err := runtime.Encode(codecs.EncoderForVersion(serializerFor(t, f).Serializer, gv), o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// encodedEvent returns an event as an API server sends it.
func encodedEvent(t *testing.T, kind string, object []byte, f encoding) []byte {
	t.Helper()
	var b bytes.Buffer
	stream := serializerFor(t, f).StreamSerializer
	encoder := scheme.Codecs.EncoderForVersion(stream.Serializer, corev1.SchemeGroupVersion)
	event := &metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: object}}
	if err := encoder.Encode(event, stream.Framer.NewFrameWriter(&b)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// readerOf returns a reader without a watch cache, which can only encode.
func readerOf(t *testing.T, kind schema.GroupVersionKind, dynamic bool) *Reader {
	t.Helper()
	return &Reader{resource: &Resource{Kind: kind, Dynamic: dynamic}, json: serializerFor(t, objectJSON).Serializer}
}

// builtinKinds calls do with random objects of every kind that has protobuf and a list.
func builtinKinds(t *testing.T, do func(*Reader, func() runtime.Object)) {
	t.Helper()
	const seed = 5
	random := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed),
		serializer.NewCodecFactory(scheme.Scheme)).RandSource(rand.NewSource(seed)).NumElements(0, 2)
	kinds := 0
	for _, gvk := range slices.SortedFunc(knownKinds(), func(a, b schema.GroupVersionKind) int {
		return strings.Compare(a.String(), b.String())
	}) {
		kinds++
		do(readerOf(t, gvk, false), func() runtime.Object { return randomObject(t, random.Fill, gvk) })
	}
	if kinds < 60 {
		t.Errorf("only %d kinds", kinds)
	}
}

func knownKinds() func(func(schema.GroupVersionKind) bool) {
	return func(yield func(schema.GroupVersionKind) bool) {
		for gvk, goType := range scheme.Scheme.AllKnownTypes() {
			o := reflect.New(goType).Interface()
			_, object := o.(metav1.Object)
			_, message := o.(interface{ Marshal() ([]byte, error) })
			listed := scheme.Scheme.Recognizes(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
			if object && message && listed && gvk.Version != runtime.APIVersionInternal && !yield(gvk) {
				return
			}
		}
	}
}

// randomObject returns an object that does not name its kind, like those of storages.
func randomObject(t *testing.T, fill func(any), gvk schema.GroupVersionKind) runtime.Object {
	t.Helper()
	o, err := scheme.Scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	fill(o)
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return o
}

func item(t *testing.T, r *Reader, o runtime.Object, f encoding) []byte {
	t.Helper()
	b, err := r.encodeItem(o, f)
	if err != nil {
		t.Fatal(r.resource.Kind, err)
	}
	return b
}

func partial(t *testing.T, o runtime.Object) *metav1.PartialObjectMetadata {
	t.Helper()
	m, err := meta.Accessor(o)
	if err != nil {
		t.Fatal(err)
	}
	p := meta.AsPartialObjectMetadata(m)
	p.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	return p
}

func expectBytes(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	from := max(0, at-40)
	t.Errorf("%s differs at byte %d of %d:\ngot  %.200q\nwant %.200q", what, at, len(want), got[from:], want[from:])
}

func TestObjectsAndEventsEqualTheCodecs(t *testing.T) {
	builtinKinds(t, func(r *Reader, next func() runtime.Object) {
		for _, f := range allEncodings {
			o := next()
			shown := o
			if isMetadata(f) {
				shown = partial(t, o)
			}
			want := encoded(t, shown, r.resource.Kind.GroupVersion(), f)
			one := item(t, r, o, f)
			object := r.resource.appendObject(nil, one, f)
			what := fmt.Sprint(r.resource.Kind, " in encoding ", f)
			expectBytes(t, what+" framed", r.resource.appendEvent(nil, watch.Modified, one, f), encodedEvent(t, "MODIFIED", want,
				f))
			if !isProtobuf(f) {
				object = append(object, '\n') // as at the end of a response
			}
			expectBytes(t, what, object, want)
		}
	})
}

// The metadata of a protobuf object is a part of its bytes.
func TestMetadataField(t *testing.T) {
	builtinKinds(t, func(r *Reader, next func() runtime.Object) {
		o := next()
		field := metadataField(item(t, r, o, objectProtobuf))
		expectBytes(t, r.resource.Kind.String(), field, item(t, r, o, metadataProtobuf))
	})
	for name, b := range map[string][]byte{"nothing": nil, "another field": {0x12, 0}, "a number": {0x08, 1},
		"a torn one": {0x0a, 9, 1}} {
		if got := metadataField(b); got != nil {
			t.Errorf("of %s: %q", name, got)
		}
	}
}

// resultOf returns a result with a number of objects, all that a list's head needs.
func resultOf(items int) *watchcache.ListResult {
	l := &watchcache.ListResult{Revision: keepwatch.Revision(12345), Selected: make([]*watchcache.Object, items)}
	if items == 1 {
		l.Continue, l.Remaining = "a<token>", new(int64(items))
	}
	return l
}

func listMetaOf(l *watchcache.ListResult) metav1.ListMeta {
	return metav1.ListMeta{ResourceVersion: l.Revision.String(), Continue: l.Continue, RemainingItemCount: l.Remaining}
}

// joined returns a list as a response contains it.
func encodedList(t *testing.T, r *Reader, l *watchcache.ListResult, items [][]byte, as encoding) []byte {
	t.Helper()
	size, body := 0, listBody{encoding: as}
	for i, item := range items {
		size += body.size(item, i == 0)
	}
	head, tail, err := r.resource.listHeadAndTail(l, as, size)
	if err != nil {
		t.Fatal(err)
	}
	b := bytes.Clone(head)
	for i, item := range items {
		b = body.append(b, item, i == 0)
	}
	return append(b, tail...)
}

func TestListsEqualTheCodecs(t *testing.T) {
	builtinKinds(t, func(r *Reader, next func() runtime.Object) {
		for _, f := range allEncodings {
			for _, n := range []int{0, 1, 3} {
				l := resultOf(n)
				var objects []runtime.Object
				var items [][]byte
				for range n {
					o := next()
					objects, items = append(objects, o), append(items, item(t, r, o, f))
				}
				want := encoded(t, listOf(t, r, l, objects, f), r.resource.Kind.GroupVersion(), f)
				expectBytes(t, fmt.Sprint("a list of ", n, " ", r.resource.Kind, " in encoding ", f), encodedList(t, r, l, items,
					f), want)
			}
		}
	})
}

// listOf returns the list that an API server encodes.
func listOf(t *testing.T, r *Reader, l *watchcache.ListResult, objects []runtime.Object, f encoding) runtime.Object {
	t.Helper()
	if isMetadata(f) {
		list := &metav1.PartialObjectMetadataList{ListMeta: listMetaOf(l)}
		for _, o := range objects {
			list.Items = append(list.Items, *partial(t, o))
		}
		return list
	}
	list, err := scheme.Scheme.New(r.resource.Kind.GroupVersion().WithKind(r.resource.listKind()))
	if err != nil {
		t.Fatal(err)
	}
	about := listMetaOf(l)
	m, err := meta.ListAccessor(list)
	if err != nil {
		t.Fatal(err)
	}
	m.SetResourceVersion(about.ResourceVersion)
	m.SetContinue(about.Continue)
	m.SetRemainingItemCount(about.RemainingItemCount)
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	items.Set(reflect.MakeSlice(items.Type(), 0, len(objects))) // empty, not absent
	for _, o := range objects {
		items.Set(reflect.Append(items, reflect.ValueOf(o).Elem()))
	}
	return list
}

func TestListsOfCustomResourcesEqualTheCodec(t *testing.T) {
	r := readerOf(t, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, true)
	for _, n := range []int{0, 1, 3} {
		l := resultOf(n)
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(r.resource.kindOfList(objectJSON))
		list.SetResourceVersion(l.Revision.String())
		list.SetContinue(l.Continue)
		list.SetRemainingItemCount(l.Remaining)
		var items [][]byte
		for i := range n {
			w := unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"note": "<&>\u2028é",
				"size": int64(i)}}}
			w.SetGroupVersionKind(r.resource.Kind)
			w.SetName(fmt.Sprint("w", i))
			list.Items, items = append(list.Items, w), append(items, item(t, r, &w, objectJSON))
		}
		want, err := runtime.Encode(unstructured.UnstructuredJSONScheme, list)
		if err != nil {
			t.Fatal(err)
		}
		expectBytes(t, fmt.Sprint("a list of ", n), encodedList(t, r, l, items, objectJSON), want)
	}
}

func TestErrorEventsEqualTheCodecs(t *testing.T) {
	gone := apierrors.NewResourceExpired(`too old resource version: 1 (<2>)`)
	internal := apierrors.NewInternalError(errGone)
	for name, test := range map[string]struct {
		err    error
		status metav1.Status
	}{
		"a status":          {gone, gone.ErrStatus},
		"a status, wrapped": {fmt.Errorf("watch: %w", gone), gone.ErrStatus},
		"any other error":   {errGone, internal.ErrStatus},
	} {
		for _, f := range allEncodings {
			want := encodedEvent(t, "ERROR", encoded(t, &test.status, corev1.SchemeGroupVersion, f), f)
			expectBytes(t, fmt.Sprint(name, " in encoding ", f), errorEvent(test.err, f), want)
		}
	}
}
