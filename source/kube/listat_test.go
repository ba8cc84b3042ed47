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
