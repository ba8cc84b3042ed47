package kube

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch"
)

// decoded is an object from decode.
type decoded struct {
	Raw
	pod *corev1.Pod
}

func (d *decoded) Key() keepwatch.Key           { return d.Raw.Key }
func (d *decoded) UID() keepwatch.UID           { return d.Raw.UID }
func (d *decoded) Revision() keepwatch.Revision { return d.Raw.Revision }

// decode decodes pods in both encodings. It fails for pods with the label "bad".
func decode(raw Raw) (keepwatch.Object, error) {
	d := &decoded{Raw: raw, pod: &corev1.Pod{}}
	d.Raw.Body = nil
	var err error
	if raw.Encoding == Protobuf {
		err = d.pod.Unmarshal(raw.Body)
	} else {
		err = json.Unmarshal(raw.Body, d.pod)
	}
	if d.pod.Labels["bad"] != "" {
		err = errors.New("a bad pod")
	}
	return d, err
}

func podOf(name string, revision int) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ns", UID: types.UID("uid-" + name), ResourceVersion: fmt.Sprint(revision),
			Annotations: map[string]string{"color": "blue"},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kubelet", FieldsV1: fieldsV1(`{"f:status":{}}`)},
				{Manager: "kubectl", FieldsV1: fieldsV1(`{"f:spec":{}}`)},
			},
		},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}
}

type protobufMessage interface{ Marshal() ([]byte, error) }

// envelope returns a message as a server sends it.
func envelope(apiVersion, kind string, m protobufMessage) []byte {
	raw, err := m.Marshal()
	if err != nil {
		panic(err)
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	text, err := unknown.Marshal()
	if err != nil {
		panic(err)
	}
	return append([]byte("k8s\x00"), text...)
}

func podListOf(revision int, next string, remaining int64, pods ...corev1.Pod) []byte {
	list := &corev1.PodList{Items: pods}
	list.ResourceVersion, list.Continue = fmt.Sprint(revision), next
	if remaining > 0 {
		list.RemainingItemCount = &remaining
	}
	return envelope("v1", "PodList", list)
}

func wireFrame(kind string, object []byte) string {
	text, err := (&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: object}}).Marshal()
	if err != nil {
		panic(err)
	}
	return string(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
}

func wirePod(kind, name string, revision int) string {
	pod := podOf(name, revision)
	return wireFrame(kind, envelope("v1", "Pod", &pod))
}

func wireBookmark(revision int, annotations map[string]string) string {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(revision), Annotations: annotations}}
	return wireFrame("BOOKMARK", envelope("v1", "Pod", &pod))
}

func wireStatus(code int32, reason metav1.StatusReason, message string) []byte {
	return envelope("v1", "Status", &metav1.Status{Status: "Failure", Code: code, Reason: reason, Message: message})
}

func inProtobuf(w http.ResponseWriter, parameters string) {
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf"+parameters)
}

func TestProtobufList(t *testing.T) {
	const accept = "application/vnd.kubernetes.protobuf,application/json"
	want := []corev1.Pod{podOf("a", 3), podOf("b", 4), podOf("c", 5)}
	overEach(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept"); got != accept {
			t.Errorf("requested %q, want %q", got, accept)
		}
		inProtobuf(w, "")
		w.Write(podListOf(7, "more", 9, want...))
	}, Options{Protobuf: true, Decode: decode}, func(t *testing.T, s *Source) {
		page, err := s.List(t.Context(), keepwatch.ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if page.Revision != 7 || page.Continue != "more" || page.Remaining != 9 || len(page.Skipped) != 0 {
			t.Errorf("page %+v", page)
		}
		for i, o := range page.Objects {
			got := o.(*decoded)
			if diff := cmp.Diff(want[i], *got.pod); diff != "" {
				t.Error(diff)
			}
			if got.Key() != (keepwatch.Key{Namespace: "ns", Name: want[i].Name}) || got.UID() != keepwatch.UID(want[i].UID) ||
				got.Revision().String() != want[i].ResourceVersion || got.Kind != corev1.SchemeGroupVersion.WithKind("Pod") {
				t.Errorf("raw is %+v", got.Raw)
			}
		}
		if len(page.Objects) != len(want) {
			t.Errorf("%d objects", len(page.Objects))
		}
	})
}

func TestProtobufMetadataRequest(t *testing.T) {
	var all requestLog
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		all.record(r)
		w.WriteHeader(http.StatusNotFound)
	}), Options{Protobuf: true, Decode: decode, Representation: MetadataOnly})
	s.List(t.Context(), keepwatch.ListRequest{})
	s.Watch(t.Context(), 1)
	for i, want := range []string{
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
	} {
		if got := all.requests[i].Header.Get("Accept"); got != want {
			t.Errorf("requested %q, want %q", got, want)
		}
	}
}

// Servers without protobuf for a kind answer in JSON. Items without a type have that of
// their list.
func TestProtobufNotSupported(t *testing.T) {
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") != "" {
			send(w, podFrame("ADDED", "c", 9))
			return
		}
		send(w, podList(7, "", pod("a", 3), pod("b", 4)))
	}), Options{Protobuf: true, Decode: decode})
	page, err := s.List(t.Context(), keepwatch.ListRequest{})
	if err != nil || len(page.Objects) != 2 {
		t.Fatal(page, err)
	}
	for _, o := range page.Objects {
		if raw := o.(*decoded).Raw; raw.Encoding != JSON || raw.Kind != corev1.SchemeGroupVersion.WithKind("Pod") {
			t.Errorf("raw is %+v", raw)
		}
	}
	w, err := s.Watch(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	batches, _ := drain(w)
	wantHistory(t, batches, 7, 9, "ADDED c@9")
}

func TestProtobufStatus(t *testing.T) {
	overEach(t, func(w http.ResponseWriter, r *http.Request) {
		inProtobuf(w, "")
		w.WriteHeader(http.StatusGone)
		w.Write(wireStatus(410, metav1.StatusReasonExpired, "the continue token is too old"))
	}, Options{Protobuf: true, Decode: decode}, func(t *testing.T, s *Source) {
		_, err := s.List(t.Context(), keepwatch.ListRequest{})
		wantFailure(t, err, keepwatch.Expired, "list pods: the continue token is too old")
	})
}

func TestProtobufWatch(t *testing.T) {
	overEach(t, func(w http.ResponseWriter, r *http.Request) {
		inProtobuf(w, ";stream=watch")
		send(w, wirePod("ADDED", "a", 8), wirePod("MODIFIED", "a", 9), wirePod("DELETED", "a", 11), wireBookmark(20, nil),
			wireFrame("ERROR", wireStatus(410, metav1.StatusReasonExpired, "too old resource version")))
	}, Options{Protobuf: true, Decode: decode}, func(t *testing.T, s *Source) {
		w, err := s.Watch(t.Context(), 7)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		batches, err := drain(w)
		wantHistory(t, batches, 7, 20, "ADDED a@8", "MODIFIED a@9", "DELETED a@11")
		wantFailure(t, err, keepwatch.Expired, "watch pods: too old resource version")
		got, want := batches[0].Changes[0].Object.(*decoded), podOf("a", 8)
		if diff := cmp.Diff(want, *got.pod); diff != "" || got.Kind != (schema.GroupVersionKind{Version: "v1", Kind: "Pod"}) {
			t.Error(diff, got.Kind)
		}
	})
}

func TestProtobufStreamingList(t *testing.T) {
	s := newSource(t, serve(t, "HTTP/2.0", func(w http.ResponseWriter, r *http.Request) {
		inProtobuf(w, ";stream=watch")
		send(w, wirePod("ADDED", "a", 3), wirePod("ADDED", "b", 4),
			wireBookmark(7, map[string]string{"other": "true", metav1.InitialEventsAnnotationKey: "true"}),
			wirePod("MODIFIED", "a", 8))
	}), Options{Protobuf: true, Decode: decode})
	var names []string
	revision, w, err := s.StreamList(t.Context(), 0, func(objects []keepwatch.Object) error {
		for _, o := range objects {
			names = append(names, o.(*decoded).pod.Name)
		}
		return nil
	})
	if err != nil || revision != 7 || fmt.Sprint(names) != "[a b]" {
		t.Fatal(revision, names, err)
	}
	defer w.Close()
	batches, err := drain(w)
	wantHistory(t, batches, 7, 8, "MODIFIED a@8")
	wantFailure(t, err, keepwatch.Ended)
}

// A list skips an invalid object, and returns the others.
func TestProtobufSkips(t *testing.T) {
	bad, long, nameless := podOf("bad", 3), podOf("long", 4), podOf("", 5)
	bad.Labels = map[string]string{"bad": "yes"}
	long.Annotations = map[string]string{"long": strings.Repeat("x", 100<<10)}
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		inProtobuf(w, "")
		w.Write(podListOf(7, "", 0, podOf("a", 3), bad, long, nameless, podOf("z", 5)))
	}), Options{Protobuf: true, Decode: decode, MaxObject: 32 << 10})
	page, err := s.List(t.Context(), keepwatch.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Objects) != 2 || page.Objects[0].Key().Name != "a" || page.Objects[1].Key().Name != "z" {
		t.Errorf("objects %v", page.Objects)
	}
	if len(page.Skipped) != 3 {
		t.Fatalf("skipped %v", page.Skipped)
	}
	wantFailure(t, page.Skipped[0], keepwatch.Undecodable, "object ns/bad at revision 3: a bad pod")
	wantFailure(t, page.Skipped[1], keepwatch.Undecodable, "object ns/long is longer than 32768 bytes")
	wantFailure(t, page.Skipped[2], keepwatch.ProtocolViolation, "no name")
}

func TestDecodeErrorInWatch(t *testing.T) {
	bad := podOf("bad", 8)
	bad.Labels = map[string]string{"bad": "yes"}
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		inProtobuf(w, ";stream=watch")
		send(w, wireFrame("ADDED", envelope("v1", "Pod", &bad)))
	}), Options{Protobuf: true, Decode: decode})
	w, err := s.Watch(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	_, err = w.Next()
	wantFailure(t, err, keepwatch.Undecodable, "watch pods: object ns/bad at revision 8: a bad pod")
}

func TestDropManagedFields(t *testing.T) {
	for _, encoding := range []Encoding{JSON, Protobuf} {
		t.Run(encoding.String(), func(t *testing.T) {
			want := podOf("a", 8)
			text, _ := json.Marshal(want)
			listed, event := podList(7, "", string(text)), `{"type":"ADDED","object":`+string(text)+"}"
			if encoding == Protobuf {
				listed, event = string(podListOf(7, "", 0, want)), wirePod("ADDED", "a", 8)
			}
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
				if encoding == Protobuf {
					inProtobuf(w, "")
				}
				if r.URL.Query().Get("watch") != "" {
					send(w, event)
					return
				}
				send(w, listed)
			}), Options{Protobuf: encoding == Protobuf, Decode: decode, DropManagedFields: true})
			want.ManagedFields = nil
			page, err := s.List(t.Context(), keepwatch.ListRequest{})
			if err != nil || len(page.Objects) != 1 {
				t.Fatal(page, err)
			}
			w, err := s.Watch(t.Context(), 7)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			batch, err := w.Next()
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range []keepwatch.Object{page.Objects[0], batch.Changes[0].Object} {
				if diff := cmp.Diff(want, *o.(*decoded).pod); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestDropManagedFieldsOfText(t *testing.T) {
	text := strings.Replace(pod("a", 3), `"uid"`, `"managedFields":[{"manager":"kubelet"}],"uid"`, 1)
	x := exchangeOf(podList(7, "", text, strings.Replace(pod("b", 4), `"name"`, `"managedFields":[],"name"`, 1)), 1<<20)
	page, err := newPageBuilder(x, builder{dropManaged: true}).page()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{pod("a", 3), pod("b", 4)} {
		want = `{"apiVersion":"v1","kind":"Pod",` + want[1:]
		if got := string(page.Objects[i].(*Object).JSON()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// A response that is truncated at any byte is a failure.
func TestProtobufTruncated(t *testing.T) {
	page := podListOf(7, "more", 0, podOf("a", 3), podOf("b", 4))
	for n := range page[:len(page)-len("\x1a\x00\x22\x00")] { // these are empty fields
		x := exchangeReading(bytes.NewReader(page[:n]), 1<<20)
		x.encoding = Protobuf
		if got, err := newPageBuilder(x, builder{decode: decode}).page(); err == nil {
			t.Errorf("a page of %d bytes of %d was accepted: %+v", n, len(page), got)
		} else if failure := x.contentFailure(err); failure.Kind != keepwatch.Undecodable &&
			failure.Kind != keepwatch.ProtocolViolation {
			t.Errorf("%d bytes: %v: %v", n, failure.Kind, failure)
		}
	}
	first := wirePod("ADDED", "a", 3)
	stream := first + wirePod("ADDED", "b", 4)
	for n := range stream {
		events, failure := readWire([]byte(stream[:n]), 1<<20)
		if want := n / len(first); len(events) != want {
			t.Errorf("%d events of %d bytes", len(events), n)
		}
		if whole := n%len(first) == 0; whole != (failure.Kind == keepwatch.Ended) || !whole &&
			failure.Kind != keepwatch.Undecodable {
			t.Errorf("%d bytes: %v: %v", n, failure.Kind, failure)
		}
	}
}

func readWire(text []byte, limit int64) (events []event, failure *keepwatch.Failure) {
	x := exchangeReading(bytes.NewReader(text), limit)
	x.encoding = Protobuf
	f := (&Source{builder: builder{decode: decode}}).frames(x, 0)
	for {
		e, failure := f.next()
		if failure != nil {
			return events, failure
		}
		events = append(events, e)
	}
}

func TestOptionsOfDecoding(t *testing.T) {
	for _, opts := range []Options{{Protobuf: true}, {Decode: decode, Representation: TableRows}} {
		opts.Resource = pods
		if _, err := New(serve(t, "HTTP/1.1", nil), opts); err == nil {
			t.Errorf("%+v was accepted", opts)
		}
	}
}

// fieldsV1 returns fields from their JSON. metav1.NewFieldsV1 is not in older versions.
func fieldsV1(text string) *metav1.FieldsV1 {
	f := &metav1.FieldsV1{}
	if err := f.UnmarshalJSON([]byte(text)); err != nil {
		panic(err)
	}
	return f
}
