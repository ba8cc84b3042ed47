package verbatim

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

var (
	pods        = NewFormat(podLayout, Representation{Encoding: JSON{}})
	podMessages = NewFormat(podLayout, Representation{Encoding: Protobuf{}})
	widgets     = NewFormat(Layout{Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
		Dynamic: true}, Representation{Encoding: JSON{}})
	podLayout = Layout{Kind: corev1.SchemeGroupVersion.WithKind("Pod"), Namespaced: true}
)

func decode(t testing.TB, f *Format, text string) *document {
	t.Helper()
	o, _, err := f.Decode([]byte(text), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o.(*document)
}

func metadataOf(t testing.TB, o *document, protobuf bool) string {
	t.Helper()
	text, err := o.Metadata(protobuf)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A document has what selectors use, and is written as it was read: with fields that no Go type has.
func TestDocument(t *testing.T) {
	const text = `{"metadata":{"name":"a","namespace":"n","resourceVersion":"7","labels":{"l":"<&\u003c"},"managedFields":[{"manager":"m"}],"new":[1e400]},` +
		`"spec":{"nodeName":"one","hostNetwork":true,"containers":[{"nodeName":"two"}]},"status":{"phase":"Running","new":{"phase":"no"}}}`
	o := decode(t, pods, text)
	labels, fields, err := pods.Attributes(o)
	if err != nil || labels["l"] != "<&<" {
		t.Errorf("labels %v, %v", labels, err)
	}
	want := map[string]string{
		"metadata.name": "a", "metadata.namespace": "n", "spec.nodeName": "one", "spec.hostNetwork": "true",
		"spec.restartPolicy": "",
		"spec.schedulerName": "", "spec.serviceAccountName": "", "status.phase": "Running", "status.nominatedNodeName": "",
	}
	if !maps.Equal(fields, want) {
		t.Errorf("fields %v", fields)
	}
	if got, err := o.MarshalJSON(); string(got) != text || err != nil {
		t.Errorf("written: %s, %v", got, err)
	}
	const head = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",`
	metadata := head + text[1:strings.Index(text, `,"spec"`)] + "}"
	if got := metadataOf(t, o, false); got != metadata {
		t.Errorf("metadata: %s", got)
	}
	if _, err := o.Metadata(true); err == nil {
		t.Error("JSON of a built-in kind has metadata in protobuf")
	}
	if _, err := o.Marshal(); err == nil {
		t.Error("JSON is written as protobuf")
	}
	o.SetResourceVersion("12345678901234567890")
	if got := metadataOf(t, o, false); got != strings.Replace(metadata, `"7"`, `"12345678901234567890"`, 1) {
		t.Errorf("metadata with another revision: %s", got)
	}
	if got, err := o.MarshalJSON(); string(got) != strings.Replace(text, `"7"`, `"12345678901234567890"`, 1) ||
		err != nil {
		t.Errorf("with another revision: %s, %v", got, err)
	}
}

// Objects of built-in kinds name their kind in events and on their own, and not in lists; custom resources
// always do.
func TestItems(t *testing.T) {
	const item, whole = `{"metadata":{"name":"a"}}`, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`
	for _, text := range []string{item, whole} {
		if got := string(pods.Encoding.item(pods, []byte(text))); got != item {
			t.Errorf("%s in a list: %s", text, got)
		}
	}
	const widget = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}`
	if got := string(widgets.Encoding.item(widgets, []byte(widget))); got != widget {
		t.Errorf("a custom resource in a list: %s", got)
	}
}

// What is not an object is refused, and nothing panics.
func TestNoDocument(t *testing.T) {
	for _, text := range []string{
		``, `null`, `[]`, `1`, `{`, `{}`, `{"metadata":null}`, `{"metadata":[]}`, `{"metadata":{"resourceVersion":7}}`,
		`{"metadata":{"name":"a"}}`,
		`{"metadata":{"resourceVersion":"7"},"metadata":{"resourceVersion":"8"}}`,
		`{"metadata":{"resourceVersion":"7","resourceVersion":"8"}}`,
		`{"metadata":{"resourceVersion":"7"},"spec":{"nodeName":{}}}`, `{"metadata":{"resourceVersion":"7"},"spec":`,
	} {
		if o, _, err := pods.Decode([]byte(text), nil, nil); err == nil {
			t.Errorf("%s is %v", text, o)
		}
	}
	for _, text := range []string{`{"metadata":{"resourceVersion":"7"},"spec":null}`,
		`{"metadata":{"resourceVersion":"7"},"spec":{"nodeName":null},"status":[1]}`} {
		if decode(t, pods, text).selected["spec.nodeName"] != "" {
			t.Errorf("%s has a node", text)
		}
	}
}

// Of an object that was deleted long ago, and of a bookmark, only metadata is known.
func TestMetadataOnly(t *testing.T) {
	for f, want := range map[*Format]string{
		pods:    `{"metadata":{"name":"a","resourceVersion":"7"}}`,
		widgets: `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"7"}}`,
	} {
		o := f.NewDocument().(*document)
		o.Name, o.ResourceVersion = "a", "7"
		text, err := runtime.Encode(f, o)
		if string(text) != want || err != nil {
			t.Errorf("%s, %v", text, err)
		}
		if again := decode(t, f, string(text)); again.Name != "a" || again.ResourceVersion != "7" {
			t.Errorf("read again: %v", again)
		}
	}
}

// A bookmark is written as the server writes the one that ends a streaming list, with its annotation or without.
func TestBookmarks(t *testing.T) {
	for name, c := range map[string]struct {
		about          Layout
		object         string
		plain, listEnd string
	}{
		"built-in": {podLayout,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}`,
			`{"metadata":{"resourceVersion":"88"},"spec":{"containers":null},"status":{}}`,
			`{"metadata":{"resourceVersion":"88","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}`},
		"custom resource": {Layout{Kind: widgets.kind, Dynamic: true},
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"7"}}`,
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"resourceVersion":"88"}}`,
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"88"}}`},
		"another annotation": {podLayout,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","annotations":{"a":"b","k8s.io/initial-events-end":"true"}}}`,
			`{"metadata":{"resourceVersion":"88"}}`,
			`{"metadata":{"resourceVersion":"88","annotations":{"k8s.io/initial-events-end":"true"}}}`},
		"no object": {podLayout, `{"kind":"Pod"`, `{"metadata":{"resourceVersion":"88"}}`,
			`{"metadata":{"resourceVersion":"88","annotations":{"k8s.io/initial-events-end":"true"}}}`},
		"no bookmarks": {podLayout, "", `{"metadata":{"resourceVersion":"88"}}`,
			`{"metadata":{"resourceVersion":"88","annotations":{"k8s.io/initial-events-end":"true"}}}`},
	} {
		c.about.ListEnds = map[Encoding][]byte{}
		if c.object != "" {
			c.about.ListEnds[JSON{}] = []byte(c.object)
		}
		f := NewFormat(c.about, Representation{Encoding: JSON{}})
		o := f.NewDocument().(*document)
		o.ResourceVersion = "88"
		if text, err := o.MarshalJSON(); string(text) != c.plain || err != nil {
			t.Errorf("%s: a bookmark: %s, %v", name, text, err)
		}
		if got := metadataOf(t, o,
			false); got != `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"88"}}` {
			t.Errorf("%s: its metadata: %s", name, got)
		}
		o.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		if text, err := o.MarshalJSON(); string(text) != c.listEnd || err != nil {
			t.Errorf("%s: the end of a streaming list: %s, %v", name, text, err)
		}
	}
}

// The metadata of a custom resource has the order of PartialObjectMetadata, in both encodings.
func TestMetadataOfCustomResources(t *testing.T) {
	const text = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"annotations":{"a":"\u003c"},"creationTimestamp":"2026-11-23T04:00:00Z","managedFields":[` +
		`{"apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}},"manager":"m","operation":"Update","time":"2026-11-23T04:00:00Z"}],` +
		`"name":"a","namespace":"n","resourceVersion":"7","uid":"u"},"spec":{"metadata":{}}}`
	o := decode(t, widgets, text)
	const want = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7",` +
		`"creationTimestamp":"2026-11-23T04:00:00Z","annotations":{"a":"\u003c"},"managedFields":[{"manager":"m","operation":"Update","apiVersion":"example.com/v1",` +
		`"time":"2026-11-23T04:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}]}}`
	if got := metadataOf(t, o, false); got != want {
		t.Errorf("metadata: %s", got)
	}
	var decoded metav1.PartialObjectMetadata
	if err := decoded.Unmarshal([]byte(metadataOf(t, o, true))); err != nil || decoded.Annotations["a"] != "<" ||
		decoded.ManagedFields[0].FieldsV1.GetRawString() != `{"f:spec":{}}` {
		t.Errorf("metadata in protobuf: %v, %v", decoded, err)
	}
	f := NewFormat(Layout{Kind: widgets.kind, Dynamic: true}, Representation{Encoding: JSON{}})
	if _, err := decode(t, f, strings.Replace(text, `"uid"`, `"new"`, 1)).Metadata(false); err == nil ||
		!f.unknownMetadata.Load() {
		t.Errorf("with an unknown member: %v, noticed: %v", err, f.unknownMetadata.Load())
	}
}

// A document decodes as encoding/json does, or is refused; with another revision it differs in that alone.
func FuzzDocument(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a","resourceVersion":"7","labels":{"a":"b"}},"spec":{"nodeName":"n"}}`))
	f.Add([]byte(`{ "spec": {"nodeName":"n"}, "metadata" : {"resourceVersion" : "7\u0030"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		o, _, err := pods.Decode(text, nil, nil)
		if err != nil {
			return
		}
		var want corev1.Pod
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &struct {
			Metadata any `json:"metadata"`
		}{&want.ObjectMeta}); err != nil {
			return // of managedFields, which are not decoded
		}
		d := o.(*document)
		if want.ManagedFields = nil; d.Name != want.Name || d.ResourceVersion != want.ResourceVersion ||
			!maps.Equal(d.Labels, want.Labels) {
			t.Fatalf("%s: %v, want %v", text, d.ObjectMeta, want.ObjectMeta)
		}
		d.SetResourceVersion("99")
		changed, err := d.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if again := decode(t, pods, string(changed)); again.ResourceVersion != "99" || again.Name != d.Name {
			t.Fatalf("%s with another revision: %s", text, changed)
		}
	})
}
