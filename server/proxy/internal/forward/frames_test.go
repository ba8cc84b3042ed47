package forward

import (
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch"
)

// frame returns an event as a server writes it.
func frame(t *testing.T, kind, revision, text string, isProtobuf bool) []byte {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: revision},
		Data: map[string]string{"text": text}}
	if text == metav1.InitialEventsAnnotationKey {
		object.Annotations = map[string]string{text: "true"}
	}
	if !isProtobuf {
		body, err := json.Marshal(map[string]any{"type": kind, "object": object})
		if err != nil {
			t.Fatal(err)
		}
		return append(body, '\n')
	}
	raw, err := object.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := (&runtime.Unknown{Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	body, err := (&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: append([]byte("k8s\x00"),
		envelope...)}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// The position of a watch is the revision of its last whole event, wherever the parts in which it arrives end.
func TestFrameReader(t *testing.T) {
	type event struct {
		kind, revision, text string
		position             keepwatch.Revision // behind it
	}
	long := strings.Repeat("x", 3*maxFrame)
	for name, test := range map[string]struct {
		begin  frameReader
		events []event
	}{
		"events": {frameReader{at: 5}, []event{{"ADDED", "7", "x", 7}, {"MODIFIED", "8", "", 8},
			{"DELETED", "9", "ERROR", 9}, {"BOOKMARK", "12", "", 12}}},
		"a long one": {frameReader{at: 5}, []event{{"ADDED", "7", "x", 7}, {"ADDED", "8", long, 0}, {"ADDED", "9", "", 9}}},
		"an error":   {frameReader{at: 5}, []event{{"ADDED", "7", "", 7}, {"ERROR", "", "", 0}, {"ADDED", "9", "", 0}}},
		"of any state": {frameReader{initial: true}, []event{{"ADDED", "7", "BOOKMARK", 0}, {"ADDED", "3", "", 0},
			{"BOOKMARK", "9", "", 9}, {"ADDED", "10", "", 10}}},
		"a streaming list": {frameReader{initial: true, endsList: true}, []event{
			{"ADDED", "7", "", 0}, {"BOOKMARK", "8", "", 0}, {"ADDED", "3", "", 0},
			{"BOOKMARK", "9", metav1.InitialEventsAnnotationKey, 9}, {"ADDED", "10", "", 10},
		}},
	} {
		for _, isProtobuf := range []bool{false, true} {
			for _, size := range []int{1, 2, 3, 5, 64, 1 << 20} {
				r := test.begin
				r.protobuf = isProtobuf
				for i, e := range test.events {
					whole := frame(t, e.kind, e.revision, e.text, isProtobuf)
					for len(whole) > 0 {
						part := whole[:min(size, len(whole))]
						r.read(part)
						if whole = whole[len(part):]; len(whole) > 0 && r.position() != 0 {
							t.Fatalf("%s, protobuf %v, parts of %d: a position within event %d", name, isProtobuf, size, i)
						}
					}
					if e.text == long && size >= 1<<20 { // arrived as a whole
						continue
					}
					if r.position() != e.position {
						t.Fatalf("%s, protobuf %v, parts of %d: position %d behind event %d, want %d", name, isProtobuf, size,
							r.position(), i, e.position)
					}
				}
			}
		}
	}
}
