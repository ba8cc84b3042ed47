package kube

import (
	"net/http"
	"testing"

	"github.com/keepwatch/keepwatch"
)

func TestMetadata(t *testing.T) {
	for name, test := range map[string]struct{ metadata, want string }{
		"none": {`{"name":"a","resourceVersion":"3"}`, `{"name":"a","resourceVersion":"3"}`},
		"first": {`{"managedFields":[{"a":"}"}],"name":"a","resourceVersion":"3"}`,
			`{"name":"a","resourceVersion":"3"}`},
		"between": {`{"name":"a","managedFields":[{"a":1}],"resourceVersion":"3"}`,
			`{"name":"a","resourceVersion":"3"}`},
		"last": {`{"name":"a","resourceVersion":"3","managedFields":null}`, `{"name":"a","resourceVersion":"3"}`},
		"indented": {"{\n\"managedFields\": [ {\n} ],\n\"name\" : \"a\",\n\"resourceVersion\":\"3\", \"labels\":{\n}}",
			`{"name":"a","resourceVersion":"3","labels":{}}`},
		"escaped": {`{"name":"\u0061","resourceVersion":"\u0033","labels":{"\"":"\\"}}`,
			`{"name":"\u0061","resourceVersion":"\u0033","labels":{"\"":"\\"}}`},
		"deeper": {`{"name":"a","resourceVersion":"3","annotations":{"managedFields":"x"}}`,
			`{"name":"a","resourceVersion":"3","annotations":{"managedFields":"x"}}`},
		"twice, nearly": {`{"name":"b"},"metadata":{"name":"a","resourceVersion":"3"}`, `{"name":"a","resourceVersion":"3"}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
				send(w, podList(7, "", `{"metadata":`+test.metadata+`,"spec":{"managedFields":1}}`))
			}), Options{})
			page, err := s.List(t.Context(), keepwatch.ListRequest{})
			if err != nil {
				t.Fatal(err)
			}
			o := page.Objects[0].(*Object)
			want := `{"apiVersion":"v1","kind":"Pod","metadata":` + test.want + `}`
			if got := string(o.Metadata()); got != want {
				t.Errorf("got %s\nwant %s", got, want)
			}
			if o.Key().Name != "a" || o.Revision() != 3 {
				t.Errorf("object is %v at %v", o.Key(), o.Revision())
			}
		})
	}
}

// An object refers to no memory of its page.
func TestObjectSharesNoText(t *testing.T) {
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		send(w, podList(7, "", pod("a", 3), pod("b", 4)))
	}), Options{})
	page, err := s.List(t.Context(), keepwatch.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range page.Objects {
		text := o.(*Object).JSON()
		if cap(text) != len(text) {
			t.Errorf("%s: %d bytes of text in a buffer of %d", o.Key(), len(text), cap(text))
		}
	}
	a, b := page.Objects[0].(*Object), page.Objects[1].(*Object)
	if a.kind != b.kind {
		t.Error("two objects of a list do not share their type")
	}
}

func TestMetadataOnly(t *testing.T) {
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		const object = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"6"}}`
		if r.URL.Query().Get("watch") != "" {
			send(w, `{"type":"ADDED","object":`+object+`}`)
			return
		}
		send(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":[`+object+`]}`)
	}), Options{Representation: MetadataOnly})
	page, err := s.List(t.Context(), keepwatch.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	batches, err := drain(open(t, s))
	wantFailure(t, err, keepwatch.Ended)
	for _, o := range []keepwatch.Object{page.Objects[0], batches[0].Changes[0].Object} {
		o := o.(*Object)
		if string(o.JSON()) !=
			`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"6"}}` {
			t.Errorf("object is %s", o.JSON())
		}
	}
}
