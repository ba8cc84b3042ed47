package kube

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/keepwatch/keepwatch"
)

const (
	columnsText = `[{"name":"Name","type":"string","format":"name","description":"d","priority":0},{"name":"Restarts","type":"integer","format":"","description":"","priority":0}]`
	partial     = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":%q,"namespace":"ns","resourceVersion":"%d"}}`
)

func tableText(revision, columns string, rows string) string {
	return fmt.Sprintf(
		`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":%q},"columnDefinitions":%s,"rows":[%s]}`,
		revision, columns, rows)
}

func rowText(name string, restarts, revision int) string {
	return fmt.Sprintf(`{"cells":[%q,%d,1.5,null],"object":`+partial+`}`, name, restarts, name, revision)
}

func wantRow(t *testing.T, object keepwatch.Object, cells string, columns int) {
	t.Helper()
	o := object.(*Object)
	if got := fmt.Sprintf("%T %v", o.Cells()[1], o.Cells()); got != cells {
		t.Errorf("cells are %s, want %s", got, cells)
	}
	if got := o.Columns(); len(got) != columns || columns > 0 && (got[0].Name != "Name" || got[1].Type != "integer") {
		t.Errorf("columns are %v", got)
	}
	if want := fmt.Sprintf(partial, o.Key().Name, o.Revision()); string(o.JSON()) != want {
		t.Errorf("object is %s, want %s", o.JSON(), want)
	}
}

func TestTableList(t *testing.T) {
	for name, text := range map[string]string{
		"as servers do": tableText("7", columnsText, rowText("a", 3, 6)),
		"columns last": `{"rows":[` + rowText("a", 3, 6) + `],"metadata":{"resourceVersion":"7"},"columnDefinitions":` +
			columnsText + `}`,
		"object in front": tableText("7", columnsText, fmt.Sprintf(`{"object":`+partial+
			`,"conditions":[],"cells":["a",3,1.5,null]}`, "a", 6)),
		"whole object rows": tableText("7", columnsText, fmt.Sprintf(`{"object":`+partial+`,"cells":["a",3,1.5,null]}`, "a",
			6)),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) { send(w, text) }),
				Options{Representation: TableRows})
			page, err := s.List(t.Context(), keepwatch.ListRequest{})
			if err != nil || page.Revision != 7 || len(page.Objects) != 1 {
				t.Fatalf("got %+v, %v", page, err)
			}
			wantRow(t, page.Objects[0], "int64 [a 3 1.5 <nil>]", 2)
		})
	}
}

func TestTableWatch(t *testing.T) {
	frames := func(columns string) []string {
		return []string{
			`{"type":"ADDED","object":` + tableText("6", columns, rowText("a", 0, 6)) + "}\n",
			`{"type":"MODIFIED","object":` + tableText("", "null", rowText("a", 1, 7)) + "}\n",
			`{"type":"BOOKMARK","object":` + tableText("20", "null",
				`{"cells":["",0],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"20","creationTimestamp":null}}}`) + "}\n",
			`{"type":"BOOKMARK","object":` + tableText("21", "null", "") + "}\n",
		}
	}
	for name, test := range map[string]struct {
		columns string
		listed  bool
		want    int
	}{
		"columns with the first event": {columnsText, false, 2},
		"columns of the list":          {"null", true, 2},
		"no columns at all":            {"null", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("watch") == "" {
					send(w, tableText("5", columnsText, ""))
					return
				}
				send(w, frames(test.columns)...)
			}), Options{Representation: TableRows})
			if test.listed {
				if _, err := s.List(t.Context(), keepwatch.ListRequest{}); err != nil {
					t.Fatal(err)
				}
			}
			batches, err := drain(open(t, s))
			wantFailure(t, err, keepwatch.Ended)
			wantHistory(t, batches, 5, 21, "ADDED a@6", "MODIFIED a@7")
			restarts := 0
			for _, b := range batches {
				for _, c := range b.Changes {
					wantRow(t, c.Object, fmt.Sprintf("int64 [a %d 1.5 <nil>]", restarts), test.want)
					restarts++
				}
			}
		})
	}
}

func TestTableStreamList(t *testing.T) {
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		send(w, `{"type":"ADDED","object":`+tableText("6", columnsText, rowText("a", 0, 6))+"}\n")
		send(w, `{"type":"BOOKMARK","object":`+tableText("9", "null",
			`{"cells":["",0],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}`)+"}\n")
	}), Options{Representation: TableRows})
	var state []keepwatch.Object
	revision, w, err := s.StreamList(t.Context(), 0, func(objects []keepwatch.Object) error {
		state = append(state, objects...)
		return nil
	})
	if err != nil || revision != 9 || len(state) != 1 {
		t.Fatalf("got %v at %v, %v", state, revision, err)
	}
	w.Close()
	wantRow(t, state[0], "int64 [a 0 1.5 <nil>]", 2)
}

// A server without tables answers with whole objects.
func TestTableNotSupported(t *testing.T) {
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			send(w, podFrame("ADDED", "a", 6))
			return
		}
		send(w, podList(7, "", pod("a", 6)))
	}), Options{Representation: TableRows})
	page, err := s.List(t.Context(), keepwatch.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	batches, err := drain(open(t, s))
	wantFailure(t, err, keepwatch.Ended)
	for _, o := range []keepwatch.Object{page.Objects[0], batches[0].Changes[0].Object} {
		if o := o.(*Object); o.Cells() != nil || o.Columns() != nil || o.Key().Name != "a" {
			t.Errorf("object is %+v", o)
		}
	}
}

func TestTableInvalid(t *testing.T) {
	for name, test := range map[string]struct {
		table string
		want  string
	}{
		"no row":             {tableText("", "null", ""), "no name"},
		"row without object": {tableText("6", "null", `{"cells":["a"]}`), "no name"},
		"two rows":           {tableText("6", "null", rowText("a", 1, 6)+","+rowText("b", 1, 6)), "an event with 2 objects"},
		"cells":              {tableText("6", "null", `{"cells":"a"}`), "a table: "},
		"columns":            {tableText("6", `"no"`, rowText("a", 1, 6)), "a table: "},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
				send(w, `{"type":"ADDED","object":`+test.table+"}\n")
			}), Options{Representation: TableRows})
			batches, err := drain(open(t, s))
			wantFailure(t, err, keepwatch.ProtocolViolation, "watch pods: ", test.want)
			wantHistory(t, batches, 5, 5)
		})
	}
}

// The kind of a custom resource may be Table.
func TestTableOfAnotherKind(t *testing.T) {
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		send(w, `{"type":"ADDED","object":{"apiVersion":"furniture.example.com/v1","kind":"Table","metadata":{"name":"oak","resourceVersion":"6"},"rows":[1,2]}}`)
	}), Options{})
	batches, err := drain(open(t, s))
	wantFailure(t, err, keepwatch.Ended)
	wantHistory(t, batches, 5, 6, "ADDED oak@6")
}
