package stream

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/keepwatch/keepwatch"
)

func event(text string) Event {
	c := change(text)
	return newEvent(c.Type, c.Revision, c.Object.(Object))
}

func lastKnownDeleted(text string) Event {
	o := at(text)
	return newEvent(keepwatch.Deleted, 99, lastKnown{o.key.String(), recordOf(o, 1, schema.GroupVersionKind{})})
}

// flushedOutput writes messages to a sink, with a flush after each, and returns the output.
func flushedOutput(t *testing.T, s Sink, out *bytes.Buffer, messages ...Message) string {
	t.Helper()
	for _, m := range messages {
		if err := s.Write(m); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// textObject is an object with a given text.
type textObject struct {
	thing
	text string
}

func (o textObject) JSON() []byte { return []byte(o.text) }

func TestNDJSON(t *testing.T) {
	tests := []struct {
		name    string
		message Message
		want    string
	}{
		{"synced", Synced{125, 41200}, `{"type":"SYNCED","revision":"125","count":41200}`},
		{"gap", Gap{125, 170, keepwatch.GapExpired}, `{"type":"GAP","from":"125","to":"170","reason":"expired"}`},
		{"bookmark", Bookmark{180}, `{"type":"BOOKMARK","revision":"180"}`},
		{"added", newEvent(keepwatch.Added, 7, textObject{at("a.1@7"), `{"x":1}`}),
			`{"type":"ADDED","revision":"7","id":"a.1/7","resource":"deployments.apps","object":{"x":1}}`},
		{"modified", newEvent(keepwatch.Modified, 7, textObject{at("a.1@7"), `{"x":"<&>\u2028"}`}),
			`{"type":"MODIFIED","revision":"7","id":"a.1/7","resource":"deployments.apps","object":{"x":"<&>\u2028"}}`},
		{"deleted in a gap", newEvent(keepwatch.Deleted, 9, textObject{at("a.1@7"), `{}`}),
			`{"type":"DELETED","revision":"9","id":"a.1/7/deleted","resource":"deployments.apps","object":{}}`},
		{"several lines", newEvent(keepwatch.Added, 7, textObject{at("a.1@7"), "{\r\n  \"x\": [1,\n 2]\n}\n"}),
			`{"type":"ADDED","revision":"7","id":"a.1/7","resource":"deployments.apps","object":{"x":[1,2]}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			if got := flushedOutput(t, NDJSON(&out, "deployments.apps"), &out, tt.message); got != tt.want+"\n" {
				t.Errorf("wrote %s\nwant  %s", got, tt.want)
			}
		})
	}
}

func TestNDJSONWithStrangeUID(t *testing.T) {
	for _, uid := range []string{`a"b\c`, "a\nb", "ü", "a\x00b"} {
		o := at("a.1@7")
		o.uid = keepwatch.UID(uid)
		var out bytes.Buffer
		got := flushedOutput(t, NDJSON(&out, "things"), &out, newEvent(keepwatch.Added, 7, textObject{o, "{}"}))
		var l struct{ ID string }
		if err := json.Unmarshal([]byte(got), &l); err != nil || l.ID != uid+"/7" || strings.Count(got, "\n") != 1 {
			t.Errorf("%q became %q (%v)", uid, got, err)
		}
	}
}

func TestNDJSONInvalidObject(t *testing.T) {
	s := NDJSON(&bytes.Buffer{}, "things")
	if err := s.Write(newEvent(keepwatch.Added, 7, textObject{at("a.1@7"), "{\n"})); err == nil {
		t.Error("accepted")
	}
}

func TestNames(t *testing.T) {
	var out bytes.Buffer
	got := flushedOutput(t, Names(&out, schema.GroupKind{Group: "apps", Kind: "Deployment"}), &out,
		event("+a.1@7"), Synced{7, 1}, event("-a.1@8"))
	if want := "deployment.apps/a\ndeployment.apps/a\n"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
}

func TestPrinter(t *testing.T) {
	jsonPath, err := printers.NewJSONPathPrinter(`{.metadata.name} {.note}{"\n"}`)
	if err != nil {
		t.Fatal(err)
	}
	jsonPath.AllowMissingKeys(true) // as kubectl does by default
	tests := []struct {
		name    string
		printer printers.ResourcePrinter
		events  bool
		want    string
	}{
		{"jsonpath", jsonPath, false, "a note 7\na note 8\na \n"},
		{"yaml", &printers.YAMLPrinter{}, false, `apiVersion: v1
kind: Thing
metadata:
  name: a
  namespace: default
  resourceVersion: "7"
  uid: a.1
note: note 7
---
apiVersion: v1
kind: Thing
metadata:
  name: a
  namespace: default
  resourceVersion: "8"
  uid: a.1
note: note 8
---
apiVersion: v1
kind: Thing
metadata:
  name: a
  namespace: default
  resourceVersion: "8"
  uid: a.1
`},
		{"yaml of watch events", &printers.YAMLPrinter{}, true, `object:
  apiVersion: v1
  kind: Thing
  metadata:
    name: a
    namespace: default
    resourceVersion: "7"
    uid: a.1
  note: note 7
type: ADDED
---
object:
  apiVersion: v1
  kind: Thing
  metadata:
    name: a
    namespace: default
    resourceVersion: "8"
    uid: a.1
  note: note 8
type: MODIFIED
---
object:
  apiVersion: v1
  kind: Thing
  metadata:
    name: a
    namespace: default
    resourceVersion: "8"
    uid: a.1
type: DELETED
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			got := flushedOutput(t, Printer(&out, tt.printer, tt.events), &out,
				event("+a.1@7"), Synced{7, 1}, event("~a.1@8"), Gap{8, 9, keepwatch.GapExpired}, lastKnownDeleted("a.1@8"))
			if got != tt.want {
				t.Errorf("wrote\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// rowObject is an object as a row of a table.
type rowObject struct {
	thing
	cells   []any
	columns []metav1.TableColumnDefinition
}

func (o rowObject) Cells() []any                            { return o.cells }
func (o rowObject) Columns() []metav1.TableColumnDefinition { return o.columns }

var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name"}, {Name: "Status", Type: "string"},
	{Name: "Restarts", Type: "integer"}, {Name: "Node", Type: "string", Priority: 1},
}

func row(kind keepwatch.ChangeType, text string, cells ...any) Event {
	o := at(text)
	return newEvent(kind, o.revision, rowObject{o, append([]any{o.key.Name}, cells...), columns})
}

func TestTable(t *testing.T) {
	messages := []Message{
		row(keepwatch.Added, "a.1@7", "Pending", int64(0), "n1"),
		row(keepwatch.Added, "long-name.1@8", "Running", int64(3), "n2"),
		Synced{8, 2},
		row(keepwatch.Modified, "a.1@9", "Running", int64(0), "n1"),
		row(keepwatch.Deleted, "a.1@10", "Terminating", int64(0), "n1"),
		Gap{10, 20, keepwatch.GapExpired},
		lastKnownDeleted("long-name.1@8"),
	}
	tests := []struct {
		name    string
		options TableOptions
		want    string
	}{
		{"plain", TableOptions{}, `
NAME        STATUS        RESTARTS
a           Pending       0
long-name   Running       3
a           Running       0
a           Terminating   0
long-name   <unknown>     <unknown>
`},
		{"all of it", TableOptions{Namespaces: true, Wide: true, WatchEvents: true}, `
EVENT      NAMESPACE   NAME        STATUS        RESTARTS    NODE
ADDED      default     a           Pending       0           n1
ADDED      default     long-name   Running       3           n2
MODIFIED   default     a           Running       0           n1
DELETED    default     a           Terminating   0           n1
DELETED    default     long-name   <unknown>     <unknown>   <unknown>
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			s := Table(&out, tt.options)
			for _, m := range messages { // without a flush between, so that all rows have one width
				if err := s.Write(m); err != nil {
					t.Fatal(err)
				}
			}
			if got := flushedOutput(t, s, &out, Bookmark{20}); trimmed(got) != strings.TrimPrefix(tt.want, "\n") {
				t.Errorf("wrote\n%s\nwant%s", trimmed(got), tt.want)
			}
		})
	}
}

// TestTableLive checks that there is one header, and that later rows have the widths of
// earlier ones.
func TestTableLive(t *testing.T) {
	var out bytes.Buffer
	got := flushedOutput(t, Table(&out, TableOptions{}), &out,
		row(keepwatch.Added, "a-long-name.1@7", "Pending", int64(0), "n1"),
		row(keepwatch.Added, "b.1@8", "Running", int64(12), "n1"))
	want := `
NAME          STATUS    RESTARTS
a-long-name   Pending   0
b             Running   12
`
	if trimmed(got) != strings.TrimPrefix(want, "\n") {
		t.Errorf("wrote\n%s\nwant%s", trimmed(got), want)
	}
}

func TestTableWithoutServerColumns(t *testing.T) {
	var out bytes.Buffer
	got := flushedOutput(t, Table(&out, TableOptions{Namespaces: true}), &out, event("+a.1@7"), lastKnownDeleted("b.1@8"))
	want := `
NAMESPACE   NAME   AGE
default     a      <unknown>
default     b      <unknown>
`
	if trimmed(got) != strings.TrimPrefix(want, "\n") {
		t.Errorf("wrote\n%s\nwant%s", trimmed(got), want)
	}
}

// trimmed returns a table without the blanks at the ends of its lines.
func trimmed(text string) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(l, " \n") + "\n")
	}
	return b.String()
}
