package kube

import (
	"bytes"
	"encoding/binary"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch"
)

// FuzzProtobufFrame reads watches in protobuf. Every event is one that the
// generated code of the API reads at the same place.
func FuzzProtobufFrame(f *testing.F) {
	for _, seed := range []string{
		wirePod("ADDED", "a", 6) + wirePod("DELETED", "a", 7) + wireBookmark(9, nil),
		wireBookmark(9, map[string]string{metav1.InitialEventsAnnotationKey: "true"}), wirePod("ADDED", "a", 6)[:40],
		wireFrame("ERROR", wireStatus(410, metav1.StatusReasonExpired, "too old")), wireFrame("ADDED", nil),
		"\x00\x00\x00\x00", "\xff\xff\xff\xff", "k8s\x00", "",
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
			kind, pod := twinEvent(t, text[4:4+n])
			text = text[4+n:]
			switch {
			case e.revision == 0 || e.revision.String() != pod.ResourceVersion:
				t.Errorf("revision %v of %q", e.revision, pod.ResourceVersion)
			case e.bookmark():
				if kind != "BOOKMARK" || e.ends != (pod.Annotations[metav1.InitialEventsAnnotationKey] == "true") {
					t.Errorf("%+v is of type %q, annotations %v", e, kind, pod.Annotations)
				}
			case kind != e.change.Type.String() || e.change.Object.Key() != keepwatch.Key{Namespace: pod.Namespace, Name: pod.Name} ||
				e.change.Object.UID() != keepwatch.UID(pod.UID):
				t.Errorf("change %+v of a %q of %v", e.change, kind, pod.ObjectMeta)
			}
		}
	})
}

func twinEvent(t *testing.T, text []byte) (string, corev1.Pod) {
	var e metav1.WatchEvent
	var unknown runtime.Unknown
	var pod corev1.Pod
	if err := e.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	if err := unknown.Unmarshal(bytes.TrimPrefix(e.Object.Raw, magic)); err != nil {
		t.Fatal(err)
	}
	if err := pod.Unmarshal(unknown.Raw); err != nil && e.Type != "BOOKMARK" {
		t.Fatal(err)
	}
	return e.Type, pod
}

// FuzzProtobufPage reads lists in protobuf: what is taken is what the generated
// code of the API reads.
func FuzzProtobufPage(f *testing.F) {
	f.Add(podListOf(7, "more", 3, podOf("a", 3), podOf("b", 4)))
	f.Add(podListOf(7, "", 0))
	f.Add(podListOf(7, "", 0, podOf("a", 3))[:60])
	f.Add(wireStatus(410, metav1.StatusReasonExpired, "too old"))
	f.Add([]byte("k8s\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		x := answeredBy(bytes.NewReader(text), fuzzBound)
		x.encoding = Protobuf
		page, err := newLister(x, maker{decode: decode}).page()
		if err != nil {
			wantPlausible(t, x.unfit(err), keepwatch.Undecodable, keepwatch.ProtocolViolation)
			return
		}
		var unknown runtime.Unknown
		var list corev1.PodList
		if unknown.Unmarshal(text[len(magic):]) != nil || list.Unmarshal(unknown.Raw) != nil {
			return // the generated code looks at more than is needed here
		}
		if page.Revision.String() != list.ResourceVersion || page.Continue != list.Continue {
			t.Errorf("page at %v of a list at %s", page.Revision, list.ResourceVersion)
		}
		if len(page.Objects)+len(page.Withheld) != len(list.Items) {
			t.Errorf("%d objects and %d withheld of %d", len(page.Objects), len(page.Withheld), len(list.Items))
		}
	})
}

// FuzzWithoutManaged drops managedFields of whatever the generated code reads.
func FuzzWithoutManaged(f *testing.F) {
	pod := podOf("a", 3)
	whole, _ := pod.Marshal()
	f.Add(whole)
	f.Add(append([]byte("\x12\x00"), whole...))
	pod.ManagedFields = nil
	whole, _ = pod.Marshal()
	f.Add(whole)
	f.Fuzz(func(t *testing.T, text []byte) {
		var want, got corev1.Pod
		if want.Unmarshal(text) != nil || bytes.Count(text, []byte{0x0a}) == 0 {
			return
		}
		if _, err := draftOf(text); err != nil {
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
		if err := got.Unmarshal(withoutManaged(bytes.Clone(text))); err != nil {
			t.Fatalf("%v in what is left of %x", err, text)
		}
		want.ManagedFields = nil
		if got.String() != want.String() {
			t.Errorf("got %v, want %v", &got, &want)
		}
	})
}
