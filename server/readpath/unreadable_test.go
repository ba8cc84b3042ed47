package readpath

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// largeLists calls yield for each encoding of lists, with and without gzip.
func largeLists(k kind, yield func(as encoding, header http.Header)) {
	for _, as := range append(slices.Clone(allEncodings), tableJSON) {
		for _, compression := range []string{"identity", "gzip"} {
			if !k.dynamic || as != objectProtobuf {
				yield(as, accept(accepted(as, asList), "Accept-Encoding", compression))
			}
		}
	}
}

// A large list with an object that can't be read is delegated, before a part of it is sent. It is answered
// here again once the object can be read, and after it was replaced or deleted.
func TestLargeListsOfAnUnreadableState(t *testing.T) {
	for _, k := range []kind{pods, statefulSets, widgets} {
		keys := newKeyServer("secret")
		r := newRig(t, k, options{transformer: keys})
		for i := range 300 {
			r.create("default", fmt.Sprintf("o%03d", i), withNote(strings.Repeat("x", 2000)))
		}
		check := func(what string, readable bool) {
			t.Helper()
			largeLists(k, func(as encoding, header http.Header) {
				for query, complete := range map[string]bool{"": readable, "?resourceVersion=0": readable, "?limit=280": readable,
					"?limit=200": true} {
					before := r.delegated.Load()
					answer, body := r.get(r.path("")+query, header)
					if delegated := r.delegated.Load() > before; delegated == complete {
						t.Errorf("%s, %s%s in encoding %v: delegated is %t, status %s", what, k.gvk.Kind, query, as, delegated,
							answer.Status)
					} else if readable && query == "" {
						expectBytes(t, what, unzipped(t, answer, body), r.expected("", predicate(labels.Everything(),
							fields.Everything()), as))
					}
				}
			})
		}
		write := func(text string) { r.waitFor(r.update("default", "o250", withNote(text))) }
		write("secret")
		check("unreadable", false)
		keys.down.Store(false)
		check("readable again", true)
		keys.down.Store(true)
		write("another secret")
		check("unreadable again", false)
		write("public")
		check("replaced", true)
		write("secret")
		r.waitFor(r.delete("default", "o250"))
		check("deleted", true)

		// At most the lists that find an unreadable object after a start end within their bodies.
		r.waitFor(r.create("default", "o250", withNote("secret")))
		r = newRig(t, k, options{db: r.db, transformer: keys})
		answer := r.open(r.path(""), accept("application/json"))
		if _, err := io.ReadAll(answer.Body); err == nil && answer.StatusCode == http.StatusOK {
			t.Errorf("after a start, a list without an unreadable object was complete")
		}
		check("after a start", false)
	}
}

// A large list with an object that can't be encoded is delegated, too, once that is known. Other encodings are
// answered.
func TestLargeListsOfAnUnencodableObject(t *testing.T) {
	r := newRig(t, pods, options{})
	table := testTable
	table.Row = func(o runtime.Object) (metav1.TableRow, error) {
		if o.(metav1.Object).GetName() == "o250" {
			return metav1.TableRow{}, errors.ErrUnsupported
		}
		return testTable.Row(o)
	}
	r.reader.resource.Table = &table
	for i := range 300 {
		r.create("default", fmt.Sprintf("o%03d", i), withNote(strings.Repeat("x", 2000)), withLabel("tier", "a"))
	}
	r.waitFor(r.create("default", "p"))
	answer := r.open(r.path(""), accept(asTable))
	if _, err := io.ReadAll(answer.Body); err == nil {
		t.Error("a Table without a row is complete")
	}
	for range 2 {
		largeLists(pods, func(as encoding, header http.Header) {
			for _, query := range []string{"", "?labelSelector=tier%3Da"} {
				before := r.delegated.Load()
				r.get(r.path("")+query, header)
				if delegated := r.delegated.Load() > before; delegated != (as == tableJSON) {
					t.Errorf("a list %q in encoding %v: delegated is %t", query, as, delegated)
				}
			}
		})
	}
}
