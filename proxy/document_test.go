package proxy

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/keepwatch/keepwatch/source/kube"
)

var (
	pods    = newFormat(corev1.SchemeGroupVersion.WithKind("Pod"), false)
	widgets = newFormat(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, true)
)

func decode(t testing.TB, f *format, text string) *document {
	t.Helper()
	o, _, err := f.Decode([]byte(text), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o.(*document)
}

// A document has what selectors use, and is written as it was read: with fields that no Go type has.
func TestDocument(t *testing.T) {
	const text = `{"metadata":{"name":"a","namespace":"n","resourceVersion":"7","labels":{"l":"<&\u003c"},"managedFields":[{"manager":"m"}],"new":[1e400]},` +
		`"spec":{"nodeName":"one","hostNetwork":true,"containers":[{"nodeName":"two"}]},"status":{"phase":"Running","new":{"phase":"no"}}}`
	o := decode(t, pods, text)
	labels, fields, err := pods.attributes(o)
	if err != nil || labels["l"] != "<&<" {
		t.Errorf("labels %v, %v", labels, err)
	}
	want := map[string]string{
		"metadata.name": "a", "metadata.namespace": "n", "spec.nodeName": "one", "spec.hostNetwork": "true", "spec.restartPolicy": "",
		"spec.schedulerName": "", "spec.serviceAccountName": "", "status.phase": "Running", "status.nominatedNodeName": "",
	}
	if !maps.Equal(fields, want) {
		t.Errorf("fields %v", fields)
	}
	if got, err := o.MarshalJSON(); string(got) != text || err != nil {
		t.Errorf("written: %s, %v", got, err)
	}
	o.SetResourceVersion("12345678901234567890")
	if got, err := o.MarshalJSON(); string(got) != strings.Replace(text, `"7"`, `"12345678901234567890"`, 1) || err != nil {
		t.Errorf("with another revision: %s, %v", got, err)
	}
}

// Objects of built-in kinds name their kind in events and on their own, and not in lists; custom resources
// always do.
func TestItems(t *testing.T) {
	const item, whole = `{"metadata":{"name":"a"}}`, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`
	for _, text := range []string{item, whole} {
		if got := string(pods.item(kube.Raw{Body: []byte(text)})); got != item {
			t.Errorf("%s in a list: %s", text, got)
		}
	}
	const widget = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}`
	if got := string(widgets.item(kube.Raw{Body: []byte(widget)})); got != widget {
		t.Errorf("a custom resource in a list: %s", got)
	}
}

// What is not an object is refused, and nothing panics.
func TestNoDocument(t *testing.T) {
	for _, text := range []string{
		``, `null`, `[]`, `1`, `{`, `{}`, `{"metadata":null}`, `{"metadata":[]}`, `{"metadata":{"resourceVersion":7}}`, `{"metadata":{"name":"a"}}`,
		`{"metadata":{"resourceVersion":"7"},"metadata":{"resourceVersion":"8"}}`, `{"metadata":{"resourceVersion":"7","resourceVersion":"8"}}`,
		`{"metadata":{"resourceVersion":"7"},"spec":{"nodeName":{}}}`, `{"metadata":{"resourceVersion":"7"},"spec":`,
	} {
		if o, _, err := pods.Decode([]byte(text), nil, nil); err == nil {
			t.Errorf("%s is %v", text, o)
		}
	}
	for _, text := range []string{`{"metadata":{"resourceVersion":"7"},"spec":null}`, `{"metadata":{"resourceVersion":"7"},"spec":{"nodeName":null},"status":[1]}`} {
		if decode(t, pods, text).selected["spec.nodeName"] != "" {
			t.Errorf("%s has a node", text)
		}
	}
}

// Of an object that was deleted long ago, and of a bookmark, only metadata is known.
func TestMetadataOnly(t *testing.T) {
	for f, want := range map[*format]string{
		pods:    `{"metadata":{"name":"a","resourceVersion":"7"}}`,
		widgets: `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"7"}}`,
	} {
		o := f.newDocument().(*document)
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
		if want.ManagedFields = nil; d.Name != want.Name || d.ResourceVersion != want.ResourceVersion || !maps.Equal(d.Labels, want.Labels) {
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
