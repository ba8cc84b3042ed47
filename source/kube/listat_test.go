package kube

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
)

func TestListAt(t *testing.T) {
	var all requestLog
	shown := 7
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		all.record(r)
		switch r.URL.Query().Get("continue") {
		case "":
			send(w, podList(shown, `,"continue":"more"`, pod("a", 3), `{"metadata":{}}`))
		default:
			send(w, podList(7, "", pod("b", 7)))
		}
	}), Options{PageSize: 2, Decode: func(Raw) (keepwatch.Object, error) {
		panic("ListAt must not call Decode, which the source may be calling")
	}})
	var names []string
	list := func() error {
		return s.ListAt(t.Context(), 7, func(objects []keepwatch.Object) error {
			for _, o := range objects {
				names = append(names, o.Key().Name+"@"+o.Revision().String())
			}
			return nil
		})
	}
	if err := list(); err != nil || strings.Join(names, " ") != "a@3 b@7" {
		t.Errorf("%v, %v", names, err)
	}
	want := []string{"limit=2&resourceVersion=7&resourceVersionMatch=Exact", "continue=more&limit=2"}
	for i, r := range all.drain() {
		if r.URL.RawQuery != want[i] || !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
			t.Errorf("requested %s, accepting %s", r.URL.RawQuery, r.Header.Get("Accept"))
		}
	}
	shown = 8
	wantFailure(t, list(), keepwatch.ProtocolViolation, "revision 8, requested was exactly 7")
	shown = 7
	stop := errors.New("enough")
	if err := s.ListAt(t.Context(), 7, func([]keepwatch.Object) error { return stop }); err != stop {
		t.Errorf("error %v", err)
	}
}

// TestListAtMakesProgress checks that ListAt ends if the server repeats a page.
func TestListAtMakesProgress(t *testing.T) {
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		send(w, podList(7, `,"continue":"more"`, pod("a", 3), pod("b", 4)))
	}), Options{PageSize: 2})
	pages := 0
	err := s.ListAt(t.Context(), 7, func([]keepwatch.Object) error {
		if pages++; pages > 10 {
			return errors.New("no end")
		}
		return nil
	})
	wantFailure(t, err, keepwatch.ProtocolViolation, "the same continue token")
}

func TestPageAt(t *testing.T) {
	var all requestLog
	shown := 7
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		all.record(r)
		switch r.URL.Query().Get("continue") {
		case "":
			send(w, podList(shown, `,"continue":"more"`, pod("a", 3), `{"metadata":{}}`))
		case "more":
			send(w, podList(7, "", pod("b", 7)))
		default:
			w.WriteHeader(http.StatusGone)
			send(w, statusText(410, "Expired", "too old", ""))
		}
	}), Options{PageSize: 2, Decode: func(raw Raw) (keepwatch.Object, error) {
		if !strings.Contains(string(raw.Body), `"spec":{}`) {
			return nil, errors.New("not the whole object")
		}
		return &decodedPod{&Object{key: raw.Key, revision: raw.Revision}}, nil
	}})
	first, err := s.PageAt(t.Context(), 7, "")
	if err != nil || len(first.Objects) != 1 || first.Objects[0].Revision() != 3 || len(first.Skipped) != 1 ||
		first.Continue != "more" {
		t.Fatalf("first page %+v, %v", first, err)
	}
	last, err := s.PageAt(t.Context(), 7, first.Continue)
	if err != nil || len(last.Objects) != 1 || last.Objects[0].Revision() != 7 || last.Continue != "" {
		t.Errorf("last page %+v, %v", last, err)
	}
	want := []string{"limit=2&resourceVersion=7&resourceVersionMatch=Exact", "continue=more&limit=2"}
	for i, r := range all.drain() {
		if r.URL.RawQuery != want[i] || r.Header.Get("Accept") != "application/json" {
			t.Errorf("requested %s, accepting %s", r.URL.RawQuery, r.Header.Get("Accept"))
		}
	}
	_, err = s.PageAt(t.Context(), 7, "another")
	wantFailure(t, err, keepwatch.Expired)
	shown = 8
	_, err = s.PageAt(t.Context(), 7, "")
	wantFailure(t, err, keepwatch.ProtocolViolation, "revision 8, requested was exactly 7")
}

// decodedPod is an object of a Decode.
type decodedPod struct{ *Object }
