package kube

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch"
)

// FuzzProtobufFrame reads watches in protobuf. The API's generated code reads the same
// event from each frame.
func FuzzProtobufFrame(f *testing.F) {
	for _, seed := range []string{
		wirePod("ADDED", "a", 6) + wirePod("DELETED", "a", 7) + wireBookmark(9, nil),
		wireBookmark(9, map[string]string{metav1.InitialEventsAnnotationKey: "true"}), wirePod("ADDED", "a", 6)[:40],
		wireFrame("ERROR", wireStatus(410, metav1.StatusReasonExpired, "too old")), wireFrame("ADDED", nil),
		"\x00\x00\x00\x00", "\xff\xff\xff\xff", "k8s\x00", "",
		// The kind is truncated, the revision has a wrong type.
		wireEvent(isBookmark, bytesField(unknownTypeMeta, "\x12\x03Po"), bytesField(unknownRaw, object9)),
		wireEvent(isBookmark, podKind, bytesField(unknownRaw, bytesField(objectMetadata, fixedField(objectMetaRevision,
			"10000000")))),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		events, failure := readWire(text, fuzzBound)
		wantPlausible(t, failure)
		if failure.Kind == keepwatch.Idle || failure.Kind == keepwatch.Unreachable {
			t.Errorf("text led to %v", failure)
		}
		for _, e := range events {
			n := binary.BigEndian.Uint32(text)
			kind, twin := twinEvent(t, text[4:4+n])
			text = text[4+n:]
			switch {
			case e.revision == 0 || e.revision.String() != twin.ResourceVersion:
				t.Errorf("revision %v of %q", e.revision, twin.ResourceVersion)
			case e.bookmark():
				if kind != "BOOKMARK" || e.endsList != (twin.Annotations[metav1.InitialEventsAnnotationKey] == "true") {
					t.Errorf("%+v is of type %q, annotations %v", e, kind, twin.Annotations)
				}
			case kind != e.change.Type.String() || e.change.Object.Key() != keepwatch.Key{Namespace: twin.Namespace,
				Name: twin.Name} ||
				e.change.Object.UID() != keepwatch.UID(twin.UID):
				t.Errorf("change %+v of a %q of %v", e.change, kind, twin)
			}
		}
	})
}

// twinEvent reads an event with the generated code. It compares only the metadata of a
// bookmark.
func twinEvent(t *testing.T, text []byte) (string, metav1.ObjectMeta) {
	var e metav1.WatchEvent
	var unknown runtime.Unknown
	if err := e.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	if err := unknown.Unmarshal(bytes.TrimPrefix(e.Object.Raw, magic)); err != nil {
		t.Fatal(err)
	}
	if e.Type == "BOOKMARK" {
		var about metav1.PartialObjectMetadata
		if err := about.Unmarshal(unknown.Raw); err != nil {
			t.Fatal(err)
		}
		return e.Type, about.ObjectMeta
	}
	var pod corev1.Pod
	if err := pod.Unmarshal(unknown.Raw); err != nil {
		t.Fatal(err)
	}
	return e.Type, pod.ObjectMeta
}

// FuzzProtobufPage reads lists in protobuf: the API's generated code reads the same page,
// except for skipped items.
func FuzzProtobufPage(f *testing.F) {
	f.Add(podListOf(7, "more", 3, podOf("a", 3), podOf("b", 4)))
	f.Add(podListOf(7, "", 0))
	f.Add(podListOf(7, "", 0, podOf("a", 3))[:60])
	f.Add(wireStatus(410, metav1.StatusReasonExpired, "too old"))
	f.Add([]byte("k8s\x00"))
	f.Add([]byte(string(magic) + podListKind + bytesField(unknownRaw, list9) + bytesField(unknownRaw, list9)))
	f.Fuzz(func(t *testing.T, text []byte) {
		x := exchangeReading(bytes.NewReader(text), fuzzBound)
		x.encoding = Protobuf
		page, err := newPageBuilder(x, builder{decode: decode}).page()
		if err != nil {
			wantPlausible(t, x.contentFailure(err), keepwatch.Undecodable, keepwatch.ProtocolViolation)
			return
		}
		var unknown runtime.Unknown
		var list corev1.PodList
		if err := unknown.Unmarshal(text[len(magic):]); err != nil {
			t.Fatal(err)
		}
		if err := list.Unmarshal(unknown.Raw); err != nil {
			if len(page.Skipped) == 0 {
				t.Fatal(err)
			}
			return // at the skipped item
		}
		if page.Revision.String() != list.ResourceVersion || page.Continue != list.Continue {
			t.Errorf("page at %v of a list at %s", page.Revision, list.ResourceVersion)
		}
		if len(page.Objects)+len(page.Skipped) != len(list.Items) {
			t.Errorf("%d objects and %d skipped of %d", len(page.Objects), len(page.Skipped), len(list.Items))
		}
	})
}

// FuzzWithoutManaged drops managedFields of every object that the generated code reads.
func FuzzWithoutManaged(f *testing.F) {
	pod := podOf("a", 3)
	whole, _ := pod.Marshal()
	f.Add(whole)
	f.Add(append([]byte("\x12\x00"), whole...))
	f.Add([]byte(bytesField(objectMetadata, bytesField(objectMetaOwners, "\x30\x01")))) // a pointer: controller
	pod.ManagedFields = nil
	whole, _ = pod.Marshal()
	f.Add(whole)
	f.Fuzz(func(t *testing.T, text []byte) {
		var want, got corev1.Pod
		if want.Unmarshal(text) != nil || bytes.Count(text, []byte{0x0a}) == 0 {
			return
		}
		if _, err := parseProtobufObject(text); err != nil {
			return
		}
		times := 0
		for m := message(text); len(m) > 0; {
			if number, _, _ := m.next(); number == objectMetadata {
				times++
			}
		}
		if times > 1 {
			return // no encoder writes metadata twice
		}
		if err := got.Unmarshal(withoutManagedFields(bytes.Clone(text))); err != nil {
			t.Fatalf("%v in the rest of %x", err, text)
		}
		want.ManagedFields = nil
		if !equality.Semantic.DeepEqual(got, want) { // String prints the addresses of pointers
			t.Error(cmp.Diff(want, got))
		}
	})
}
