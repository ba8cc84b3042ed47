package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
)

// thing is an object as a source returns it.
type thing struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
	note     string
}

func (o thing) Key() keepwatch.Key           { return o.key }
func (o thing) UID() keepwatch.UID           { return o.uid }
func (o thing) Revision() keepwatch.Revision { return o.revision }

func (o thing) JSON() []byte {
	return fmt.Appendf(nil, `{%s,"note":%q}`, o.members(), o.note)
}

func (o thing) Metadata() []byte { return fmt.Appendf(nil, `{%s}`, o.members()) }

func (o thing) members() string {
	return fmt.Sprintf(
		`"apiVersion":"v1","kind":"Thing","metadata":{"namespace":%q,"name":%q,"uid":%q,"resourceVersion":"%d"}`,
		o.key.Namespace, o.key.Name, o.uid, o.revision)
}

// at parses the short notation of a thing: "a.1@7" is the object default/a with the UID
// a.1 at revision 7.
func at(text string) thing {
	var revision uint64
	uid, number, _ := strings.Cut(text, "@")
	if _, err := fmt.Sscan(number, &revision); err != nil {
		panic(err)
	}
	name, _, _ := strings.Cut(uid, ".")
	return thing{
		key: keepwatch.Key{Namespace: "default", Name: name}, uid: keepwatch.UID(uid),
		revision: keepwatch.Revision(revision), note: "note " + number,
	}
}

func things(texts ...string) []keepwatch.Object {
	var objects []keepwatch.Object
	for _, text := range texts {
		objects = append(objects, at(text))
	}
	return objects
}

// change parses "+a.1@7", "~a.1@8" or "-a.1@9".
func change(text string) keepwatch.Change {
	kind := map[byte]keepwatch.ChangeType{'+': keepwatch.Added, '~': keepwatch.Modified, '-': keepwatch.Deleted}[text[0]]
	o := at(text[1:])
	return keepwatch.Change{Type: kind, Revision: o.revision, Object: o}
}

func batch(from, to keepwatch.Revision, changes ...string) keepwatch.Batch {
	b := keepwatch.Batch{From: from, To: to}
	for _, text := range changes {
		b.Changes = append(b.Changes, change(text))
	}
	return b
}

// testStream is a stream under test, with its output.
type testStream struct {
	*Stream
	t     *testing.T
	lines bytes.Buffer
}

func newTestStream(t *testing.T, state State, options Options) *testStream {
	t.Helper()
	x := &testStream{t: t}
	s, err := New(NDJSON(&x.lines, "things"), state, options)
	if err != nil {
		t.Fatal(err)
	}
	x.Stream = s
	return x
}

// list replaces the state by a complete list.
func (x *testStream) list(relist keepwatch.Relist, to keepwatch.Revision, objects ...string) {
	x.t.Helper()
	if relist.To == 0 && x.position.Cursor > 0 {
		relist.To = to
	}
	r, err := x.Replace(context.Background(), relist)
	if err != nil {
		x.t.Fatal(err)
	}
	if err := r.Put(context.Background(), things(objects...)); err != nil {
		x.t.Fatal(err)
	}
	if err := r.Commit(context.Background(), to); err != nil {
		x.t.Fatal(err)
	}
}

// delivered returns the messages since its last call in a short notation. A deletion has
// the event's revision in parentheses: "-a.1@7 (9)". An object that is delivered again has the other part of its id:
// "+a.1@7/9".
func (x *testStream) delivered() string {
	x.t.Helper()
	var messages []string
	for text := range strings.Lines(x.lines.String()) {
		messages = append(messages, summary(x.t, text))
	}
	x.lines.Reset()
	return strings.Join(messages, ", ")
}

// line is a line of the output as a consumer decodes it.
type line struct {
	Type, Revision, ID, Resource, From, To, Reason string
	Count                                          int
	Object                                         struct {
		Kind     string
		Metadata struct{ Namespace, Name, UID, ResourceVersion string }
		Note     string
	}
}

func parse(text string) (line, error) {
	var l line
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&struct {
		*line
		Object json.RawMessage
	}{line: &l})
	if err != nil {
		return line{}, err
	}
	return l, json.Unmarshal([]byte(text), &l)
}

func summary(t *testing.T, text string) string {
	t.Helper()
	l, err := parse(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	m := l.Object.Metadata
	switch l.Type {
	case "GAP":
		return fmt.Sprintf("gap %s-%s %s", l.From, l.To, l.Reason)
	case "SYNCED":
		return fmt.Sprintf("synced %s #%d", l.Revision, l.Count)
	case "BOOKMARK":
		return "bookmark " + l.Revision
	}
	rest, ok := strings.CutPrefix(l.ID, m.UID+"/"+m.ResourceVersion)
	if !ok {
		t.Errorf("id %s of %s at %s", l.ID, m.UID, m.ResourceVersion)
	}
	again, deleted := strings.CutSuffix(rest, "/deleted")
	if deleted != (l.Type == "DELETED") || !deleted && l.Revision != m.ResourceVersion {
		t.Errorf("%s has the id %s at revision %s", l.Type, l.ID, l.Revision)
	}
	if deleted {
		return fmt.Sprintf("-%s@%s%s (%s)", m.UID, m.ResourceVersion, again, l.Revision)
	}
	return map[string]string{"ADDED": "+", "MODIFIED": "~"}[l.Type] + m.UID + "@" + m.ResourceVersion + again
}
