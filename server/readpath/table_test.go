package readpath

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"pgregory.net/rapid"
)

const asTable = "application/json;as=Table;g=meta.k8s.io;v=v1"

// longAgo is so long ago that the printed age does not change during a test.
var longAgo = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)

// testTable describes the objects of rigs in Tables.
var testTable = Table{
	Columns: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "<é>"}, {Name: "Labels", Type: "integer", Priority: 1},
		{Name: "Since", Type: "string"},
	},
	Row: func(o runtime.Object) (metav1.TableRow, error) {
		m, err := meta.Accessor(o)
		if err != nil {
			return metav1.TableRow{}, err
		}
		row := metav1.TableRow{Cells: []any{m.GetName(), int64(len(m.GetLabels())), Since{longAgo, "<é> (", " ago)"}}}
		if len(m.GetLabels()) == 0 {
			row.Conditions = []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue,
				Reason: "<none>"}}
		}
		return row, nil
	},
	Unread: Fields{1: {17: nil}, 2: nil, 3: nil}, // managed fields, spec and status
}

// tableForm is a Table that a client can ask for.
type tableForm struct {
	as      encoding
	version schema.GroupVersion
	include metav1.IncludeObjectPolicy
}

var tableForms = []tableForm{
	{tableJSON, metav1.SchemeGroupVersion, ""}, {tableJSON, metav1.SchemeGroupVersion, metav1.IncludeMetadata},
	{tableAlone, metav1.SchemeGroupVersion, metav1.IncludeNone}, {tableWhole, metav1.SchemeGroupVersion,
		metav1.IncludeObject},
	{tableJSONBeta, metav1beta1.SchemeGroupVersion, metav1.IncludeMetadata},
	{tableAloneBeta, metav1beta1.SchemeGroupVersion, metav1.IncludeNone}, {tableWholeBeta, metav1beta1.SchemeGroupVersion,
		metav1.IncludeObject},
}

func (f tableForm) accept() http.Header {
	return accept("application/json;as=Table;g=meta.k8s.io;v=" + f.version.Version)
}

// include returns what a row has of its object, as k8s.io/apiserver decides it.
func (f tableForm) included(t *testing.T, o runtime.Object, k kind) runtime.Object {
	t.Helper()
	switch {
	case f.include == metav1.IncludeObject:
		o = o.DeepCopyObject()
		o.GetObjectKind().SetGroupVersionKind(k.gvk)
		return o
	case f.include == metav1.IncludeNone && !must(apistorage.HasInitialEventsEndBookmarkAnnotation(o))(t):
		return nil
	}
	about := partial(t, o)
	about.SetGroupVersionKind(f.version.WithKind("PartialObjectMetadata"))
	return about
}

// expectedTable returns an API server's Table of an object or a list.
func expectedTable(t *testing.T, o runtime.Object, columns bool, f tableForm, k kind) []byte {
	t.Helper()
	table := &metav1.Table{Rows: []metav1.TableRow{}}
	if columns {
		table.ColumnDefinitions = testTable.Columns
	}
	add := func(o runtime.Object) error {
		row := must(testTable.Row(o))(t)
		row.Cells[2] = row.Cells[2].(Since).At(time.Now())
		row.Object.Object = f.included(t, o, k)
		table.Rows = append(table.Rows, row)
		return nil
	}
	if meta.IsListType(o) {
		list := must(meta.ListAccessor(o))(t)
		table.ResourceVersion, table.Continue, table.RemainingItemCount = list.GetResourceVersion(), list.GetContinue(),
			list.GetRemainingItemCount()
		must(0, meta.EachListItem(o, add))(t)
	} else {
		table.ResourceVersion = must(meta.Accessor(o))(t).GetResourceVersion()
		must(0, add(o))(t)
	}
	serializer := serializerFor(t, metadataJSON).Serializer
	return must(runtime.Encode(metainternalversionscheme.Codecs.EncoderForVersion(serializer, f.version), table))(t)
}

func TestObjectsAsTables(t *testing.T) {
	for _, k := range []kind{pods, statefulSets, widgets} {
		r := newRig(t, k, options{})
		o := r.create("default", "o1", withNote("<é>"))
		r.waitFor(o)
		for _, f := range tableForms {
			_, got := r.get(r.path("default")+"/o1?includeObject="+string(f.include), f.accept())
			expectBytes(t, fmt.Sprint(k.gvk.Kind, f), got, expectedTable(t, o.(runtime.Object), true, f, k))
		}
		if delegated := r.delegated.Load(); delegated > 0 {
			t.Errorf("%s: %d requests were delegated", k.gvk.Kind, delegated)
		}
		r.reader.resource.Table = nil
		if got := r.reasonFor(http.MethodGet, r.path(""), accept(asTable)); got != reasonEncoding {
			t.Errorf("%s without a Table: %q", k.gvk.Kind, got)
		}
	}
}

// The columns of a Table can have long descriptions, which are part of a list's head, also with gzip.
func TestTablesWithLongColumns(t *testing.T) {
	const objects = 100
	for _, length := range []int{64<<10 - 1, 64 << 10, 70_000, 200_000} {
		r := newRig(t, widgets, options{})
		table := testTable
		table.Columns = slices.Clone(testTable.Columns)
		table.Columns[1].Description = strings.Repeat("0123456789", length/10)
		r.reader.resource.Table = &table
		for i := range objects {
			r.waitFor(r.create("default", fmt.Sprint("o", i), withNote(strings.Repeat("x", 2000))))
		}
		plain, want := r.get(r.path(""), accept(asTable))
		answer, body := r.get(r.path(""), accept(asTable, "Accept-Encoding", "gzip"))
		if plain.StatusCode != http.StatusOK || answer.Header.Get("Content-Encoding") != "gzip" {
			t.Fatalf("%s; %s, %v", plain.Status, answer.Status, answer.Header)
		}
		expectBytes(t, fmt.Sprint("columns of ", length, " bytes"), unzipped(t, answer, body), want)
		if len(body) > len(want)/4 {
			t.Errorf("columns of %d bytes: %d bytes are sent of %d", length, len(body), len(want))
		}
	}
}

// Each event has a Table, and only the first one has the columns.
func TestWatchesAsTables(t *testing.T) {
	for _, k := range []kind{pods, statefulSets, widgets} {
		r := newRig(t, k, options{})
		added := r.create("default", "o1")
		query := "?watch=1&timeoutSeconds=600&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
		end := k.newObject().(metav1.Object)
		end.SetResourceVersion(added.GetResourceVersion())
		end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		expect := func(f tableForm, from io.Reader, event watch.EventType, o metav1.Object, columns bool) {
			t.Helper()
			want := encodedEvent(t, string(event), bytes.TrimSuffix(expectedTable(t, o.(runtime.Object), columns, f, k),
				newline), objectJSON)
			got := make([]byte, len(want))
			must(io.ReadFull(from, got))(t)
			expectBytes(t, fmt.Sprint(k.gvk.Kind, f, event), got, want)
		}
		firsts, seconds := make([]io.Reader, len(tableForms)), make([]io.Reader, len(tableForms))
		for i, f := range tableForms {
			include := "&includeObject=" + string(f.include)
			firsts[i] = r.open(r.path("")+query+include, f.accept()).Body
			seconds[i] = r.open(r.path("")+"?watch=1&timeoutSeconds=600&resourceVersion="+added.GetResourceVersion()+include,
				f.accept()).Body
			expect(f, firsts[i], watch.Added, added, true)
			expect(f, firsts[i], watch.Bookmark, end, false)
		}
		changed, deleted := r.update("default", "o1", withLabel("tier", "b")), r.delete("default", "o1")
		for i, f := range tableForms {
			for from, columns := range map[io.Reader]bool{firsts[i]: false, seconds[i]: true} {
				expect(f, from, watch.Modified, changed, columns)
				expect(f, from, watch.Deleted, deleted, false)
			}
		}
		if delegated := r.delegated.Load(); delegated > 0 {
			t.Errorf("%s: %d requests were delegated", k.gvk.Kind, delegated)
		}
	}
}

// A cached row equals a new one at any time.
func TestRowsAtAnyTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		anyTime := rapid.Custom(func(t *rapid.T) time.Time {
			return time.UnixMicro(rapid.Int64Range(-1<<52, 1<<52).Draw(t, "µs"))
		})
		cell := rapid.OneOf(
			rapid.Custom(func(t *rapid.T) any { return rapid.String().Draw(t, "text") }),
			rapid.Custom(func(t *rapid.T) any { return rapid.Int64().Draw(t, "number") }),
			rapid.Just(any(nil)), rapid.Just(any(true)), rapid.Just(any(1.5)),
			rapid.Custom(func(t *rapid.T) any {
				return Since{anyTime.Draw(t, "since"), rapid.String().Draw(t, "before"), rapid.String().Draw(t, "after")}
			}),
		)
		now := anyTime.Draw(t, "now")
		var cached []byte
		var want bytes.Buffer
		for _, c := range rapid.SliceOf(cell).Draw(t, "cells") {
			var err error
			if cached, err = appendCell(cached, c); err != nil {
				t.Fatal(err)
			}
			if since, ok := c.(Since); ok {
				c = since.At(now)
			}
			text, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			want.Write(text)
		}
		if got := appendRow(nil, cached, now); !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("got %q, want %q", got, want.Bytes())
		}
	})
}
