package verbatim

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

func aPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", Namespace: "n", UID: "u", ResourceVersion: "7", Labels: map[string]string{"l": "m"},
			Annotations:   map[string]string{"b": "c"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1("{}")}},
		},
		Spec: corev1.PodSpec{NodeName: "one", HostNetwork: true, RestartPolicy: "Always", ServiceAccountName: "s",
			Containers: []corev1.Container{{Name: "c"}}},
		Status: corev1.PodStatus{Phase: "Running", NominatedNodeName: "two"},
	}
}

func marshal(t testing.TB, o interface{ Marshal() ([]byte, error) }) []byte {
	t.Helper()
	b, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newerField is a field that no Go type has.
var newerField = protowire.AppendString(protowire.AppendTag(nil, 4000, protowire.BytesType), "newer")

// appendField appends a field with a message.
func appendField(b []byte, number protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), message)
}

// withNewerFields returns a pod's message with newer fields in its metadata, its spec and on its own.
func withNewerFields(t testing.TB, pod *corev1.Pod) []byte {
	b := appendField(nil, 1, append(marshal(t, &pod.ObjectMeta), newerField...))
	b = appendField(b, 2, append(bytes.Clone(newerField), marshal(t, &pod.Spec)...))
	return append(appendField(b, 3, marshal(t, &pod.Status)), newerField...)
}

// A message has what selectors use, and is written as it was read: with fields that no Go type has.
func TestMessage(t *testing.T) {
	text := withNewerFields(t, aPod())
	o := decode(t, podMessages, string(text))
	labels, fields, err := podMessages.Attributes(o)
	if err != nil || labels["l"] != "m" || o.UID != "u" {
		t.Errorf("labels %v, %v", labels, err)
	}
	want := map[string]string{
		"metadata.name": "a", "metadata.namespace": "n", "spec.nodeName": "one", "spec.hostNetwork": "true",
		"spec.restartPolicy": "Always",
		"spec.schedulerName": "", "spec.serviceAccountName": "s", "status.phase": "Running",
		"status.nominatedNodeName": "two",
	}
	if !maps.Equal(fields, want) {
		t.Errorf("fields %v", fields)
	}
	if got := marshal(t, o); !bytes.Equal(got, text) {
		t.Errorf("written: %q", got)
	}
	if got, want := metadataOf(t, o, true), appendField(nil, 1, append(marshal(t, &aPod().ObjectMeta),
		newerField...)); got != string(want) {
		t.Errorf("metadata: %q", got)
	}
	if _, err := o.MarshalJSON(); err == nil {
		t.Error("a message is written as JSON")
	}
	if _, err := o.Metadata(false); err == nil {
		t.Error("a message has metadata in JSON")
	}
	for _, version := range []string{"1", "12345678901234567890", strings.Repeat("9", 200)} { // other lengths of lengths
		o.SetResourceVersion(version)
		changed := aPod()
		changed.ResourceVersion = version
		if got := marshal(t, o); !bytes.Equal(got, withNewerFields(t, changed)) {
			t.Errorf("at revision %s: %q", version, got)
		}
		if got, want := metadataOf(t, o, true), appendField(nil, 1, append(marshal(t, &changed.ObjectMeta),
			newerField...)); got != string(want) {
			t.Errorf("metadata at revision %s: %q", version, got)
		}
	}
}

// The absent fields of a message have the values of the API.
func TestFieldsOfAnEmptyMessage(t *testing.T) {
	text := appendField(nil, 1, marshal(t, &metav1.ObjectMeta{Name: "a", ResourceVersion: "7"}))
	for f, want := range map[*Format]map[string]string{
		podMessages: {"spec.hostNetwork": "false", "spec.nodeName": ""},
		NewFormat(Layout{Kind: corev1.SchemeGroupVersion.WithKind("Node")},
			Representation{Encoding: Protobuf{}}): {"spec.unschedulable": "false"},
	} {
		o := decode(t, f, string(text))
		for label, value := range want {
			if got, found := o.selected[label]; got != value || !found {
				t.Errorf("%s is %q", label, got)
			}
		}
	}
}

// A bookmark in protobuf is written as the server writes the one that ends a streaming list.
func TestProtobufBookmarks(t *testing.T) {
	end := aPod()
	end.ObjectMeta = metav1.ObjectMeta{ResourceVersion: "7",
		Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	about := podLayout
	about.ListEnds = map[Encoding][]byte{Protobuf{}: withNewerFields(t, end)}
	f := NewFormat(about, Representation{Encoding: Protobuf{}})
	for _, annotations := range []map[string]string{nil, {metav1.InitialEventsAnnotationKey: "true"}} {
		o := f.NewDocument().(*document)
		o.ResourceVersion, o.Annotations = "88", annotations
		end.ResourceVersion, end.Annotations = "88", annotations
		if got := marshal(t, o); !bytes.Equal(got, withNewerFields(t, end)) {
			t.Errorf("with annotations %v: %q", annotations, got)
		}
	}
	o := podMessages.NewDocument().(*document)
	o.Name, o.ResourceVersion = "a", "7"
	if again := decode(t, podMessages, string(marshal(t, o))); again.Name != "a" || again.ResourceVersion != "7" {
		t.Errorf("of metadata alone: %v", again.ObjectMeta)
	}
}

// What is not an object is refused, and nothing panics.
func TestNoMessage(t *testing.T) {
	meta := marshal(t, &metav1.ObjectMeta{Name: "a", ResourceVersion: "7"})
	whole := appendField(nil, 1, meta)
	for name, text := range map[string][]byte{
		"nothing": nil, "no metadata": appendField(nil, 2, nil), "no version": appendField(nil, 1,
			marshal(t, &metav1.ObjectMeta{Name: "a"})),
		"metadata twice":       append(bytes.Clone(whole), whole...),
		"a number as metadata": protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1),
		"two versions":         appendField(nil, 1, appendField(bytes.Clone(meta), metaVersion, []byte("8"))),
		"a number as spec":     protowire.AppendVarint(protowire.AppendTag(bytes.Clone(whole), 2, protowire.VarintType), 1),
		"a number as node": appendField(bytes.Clone(whole), 2, protowire.AppendVarint(protowire.AppendTag(nil, 10,
			protowire.VarintType), 1)),
		"a damaged spec": appendField(bytes.Clone(whole), 2, []byte{0xff}), "half": whole[:len(whole)-3],
		"a name of another type": appendField(nil, 1,
			append(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1), meta...)),
	} {
		if o, _, err := podMessages.Decode(text, nil, nil); err == nil {
			t.Errorf("%s is %v", name, o)
		}
	}
}

// The selectable fields have the numbers of the API's Go types.
func TestSelectableFields(t *testing.T) {
	for kind, all := range selectableFields {
		example, err := scheme.Scheme.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			at, numbers := reflect.TypeOf(example).Elem(), []protowire.Number(nil)
			for name := range strings.SplitSeq(s.path, ".") {
				for i := range at.NumField() {
					f := at.Field(i)
					if json, _, _ := strings.Cut(f.Tag.Get("json"), ","); json == name {
						number, err := strconv.Atoi(strings.Split(f.Tag.Get("protobuf"), ",")[1])
						if err != nil {
							t.Fatal(err)
						}
						at, numbers = f.Type, append(numbers, protowire.Number(number))
						break
					}
				}
			}
			if !slices.Equal(numbers, s.numbers) || (at.Kind() == reflect.Bool) != (s.absent == "false") {
				t.Errorf("%s of %s: %v of type %v", s.path, kind.Kind, numbers, at)
			}
		}
	}
}

// A message decodes as the API's generated code does, or is refused; with another revision it differs in that alone.
func FuzzMessage(f *testing.F) {
	f.Add(withNewerFields(f, aPod()))
	f.Add(marshal(f, aPod()))
	f.Fuzz(func(t *testing.T, text []byte) {
		o, _, err := podMessages.Decode(text, nil, nil)
		if err != nil {
			return
		}
		var want corev1.Pod
		if err := want.Unmarshal(text); err != nil {
			return // of parts that are not decoded
		}
		d := o.(*document)
		if d.Name != want.Name || d.ResourceVersion != want.ResourceVersion || !maps.Equal(d.Labels, want.Labels) ||
			d.selected["spec.nodeName"] != want.Spec.NodeName ||
			d.selected["spec.hostNetwork"] != strconv.FormatBool(want.Spec.HostNetwork) ||
			d.selected["status.phase"] != string(want.Status.Phase) {
			t.Fatalf("%q: %v %v, want %v", text, d.ObjectMeta, d.selected, want)
		}
		d.SetResourceVersion("99")
		want.ResourceVersion = "99"
		var changed corev1.Pod
		if err := changed.Unmarshal(marshal(t, d)); err != nil || !reflect.DeepEqual(changed, want) {
			t.Fatalf("%q with another revision: %v, want %v, %v", text, changed, want, err)
		}
	})
}
