package history

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// state is one state of an object.
type state struct {
	name     string
	revision keepwatch.Revision
	body     string
}

func (o state) Key() keepwatch.Key           { return keepwatch.Key{Name: o.name} }
func (o state) UID() keepwatch.UID           { return keepwatch.UID("uid-" + o.name) }
func (o state) Revision() keepwatch.Revision { return o.revision }
func (o state) JSON() []byte                 { return []byte(o.body) }
func (o state) Metadata() []byte             { return nil }

func added(name string, at keepwatch.Revision) stream.Event {
	return stream.Event{Type: keepwatch.Added, Revision: at, Object: state{name, at, "{}"}}
}

func modified(name string, at keepwatch.Revision) stream.Event {
	return stream.Event{Type: keepwatch.Modified, Revision: at, Object: state{name, at, "{}"}}
}

func deleted(name string, at keepwatch.Revision) stream.Event {
	return stream.Event{Type: keepwatch.Deleted, Revision: at, Object: state{name, 1, ""}}
}

// text is the changes in short: "end a@0/5", "row a 0/5..0/7 deleted", "before a@0/5" for an ending of what is added.
func (c Changes) text() string {
	var lines []string
	suffix := map[bool]string{true: " deleted"}
	for _, g := range c.Gaps {
		lines = append(lines, fmt.Sprintf("gap %d %d-%d %s", g.Epoch, g.From, g.To, g.Reason))
	}
	for _, e := range c.Endings {
		verb := map[bool]string{false: "end", true: "before"}[e.Added]
		lines = append(lines, fmt.Sprintf("%s %s@%d/%d%s", verb, e.Key, e.Epoch, e.Revision, suffix[e.Deleted]))
	}
	for _, r := range c.Rows {
		line := fmt.Sprintf("row %s %d/%d", r.Key, r.From.Epoch, r.From.Revision)
		if r.End != nil {
			line += fmt.Sprintf("..%d/%d%s", r.End.Epoch, r.End.Revision, suffix[r.End.Deleted])
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

func TestOf(t *testing.T) {
	rewind := stream.Gap{From: 9, To: 4, Reason: keepwatch.GapRewind}
	for name, row := range map[string]struct {
		messages []stream.Message
		want     string
	}{
		"nothing":  {nil, ""},
		"added":    {[]stream.Message{added("a", 3)}, "before a@0/3; row a 0/3"},
		"modified": {[]stream.Message{modified("a", 3)}, "end a@0/3; row a 0/3"},
		"deleted":  {[]stream.Message{deleted("a", 3)}, "end a@0/3 deleted"},
		"modified twice": {[]stream.Message{modified("a", 3), modified("a", 4)},
			"end a@0/3; row a 0/3..0/4; row a 0/4"},
		"a whole life": {[]stream.Message{added("a", 3), modified("a", 4), deleted("a", 5)},
			"before a@0/3; row a 0/3..0/4; row a 0/4..0/5 deleted"},
		"deleted and added": {[]stream.Message{deleted("a", 3), added("a", 5)}, "end a@0/3 deleted; row a 0/5"},
		"deleted twice": {[]stream.Message{deleted("a", 3), added("a", 5), deleted("a", 6), added("a", 8)},
			"end a@0/3 deleted; row a 0/5..0/6 deleted; row a 0/8"},
		"replaced in a gap": {[]stream.Message{stream.Gap{From: 2, To: 50, Reason: keepwatch.GapExpired},
			deleted("a", 50), added("a", 40)}, "gap 0 2-50 expired; end a@0/40; row a 0/40"},
		"back to the past": {[]stream.Message{added("a", 5), modified("a", 9), deleted("a", 20), added("a", 3)},
			"before a@0/3; row a 0/5..0/5; row a 0/9..0/9; row a 0/3"},
		"rewound": {[]stream.Message{modified("a", 9), rewind, modified("a", 3), deleted("b", 4)},
			"gap 1 9-4 rewind; end a@0/9; end b@1/4 deleted; row a 0/9..1/3; row a 1/3"},
		"never before its start": {[]stream.Message{added("a", 9), modified("a", 3)},
			"before a@0/3; row a 0/9..0/9; row a 0/3"},
		"declared again": {[]stream.Message{rewind, rewind, added("a", 2)},
			"gap 1 9-4 rewind; gap 1 9-4 rewind; before a@1/2; row a 1/2"},
		"other messages": {[]stream.Message{stream.Synced{Revision: 3}, stream.Bookmark{Revision: 4}}, ""},
	} {
		got, err := Of(sink.Piece{Piece: stream.Piece{Messages: row.messages}}, false)
		if err != nil || got.text() != row.want {
			t.Errorf("%s: %q, %v, want %q", name, got.text(), err, row.want)
		}
	}
}

// TestOfAdditions has no endings for objects that are added after all ends.
func TestOfAdditions(t *testing.T) {
	live := sink.Progress{Cursor: 30, Since: 20, Epoch: 1}
	for name, row := range map[string]struct {
		before   sink.Progress
		empty    bool
		messages []stream.Message
		ends     bool
	}{
		"live":             {live, false, []stream.Message{added("a", 31)}, false},
		"the first list":   {sink.Progress{}, true, []stream.Message{added("a", 5)}, false},
		"a later list":     {sink.Progress{}, false, []stream.Message{added("a", 5)}, true},
		"an earlier state": {live, false, []stream.Message{added("a", 30)}, true},
		"in a gap": {sink.Progress{Cursor: 30, Since: 20, Epoch: 1, Gap: keepwatch.GapExpired}, false,
			[]stream.Message{added("a", 31)}, true},
		"after a rewind": {live, false, []stream.Message{stream.Gap{From: 30, To: 25, Reason: keepwatch.GapRewind},
			added("a", 31)}, true},
	} {
		got, err := Of(sink.Piece{Piece: stream.Piece{Messages: row.messages}, Before: row.before}, row.empty)
		if err != nil || len(got.Endings) > 0 != row.ends {
			t.Errorf("%s: %q, %v", name, got.text(), err)
		}
	}
	deletedTwice := []stream.Message{added("a", 31), deleted("a", 32), deleted("a", 33)}
	if _, err := Of(sink.Piece{Piece: stream.Piece{Messages: deletedTwice}, Before: live}, false); err == nil {
		t.Error("an object is deleted twice")
	}
}

func TestOfErrors(t *testing.T) {
	for want, messages := range map[string][]stream.Message{
		"ADDED a: the object was added before":     {added("a", 1), added("a", 2)},
		"DELETED a: the object was deleted before": {deleted("a", 1), deleted("a", 2)},
		"MODIFIED a: the object was deleted":       {added("a", 1), deleted("a", 2), modified("a", 3)},
		"ADDED a: the object has no body": {stream.Event{Type: keepwatch.Added, Revision: 1,
			Object: state{"a", 1, ""}}},
		"a database cannot store the revision": {added("a", math.MaxInt64+1)},
	} {
		if _, err := Of(sink.Piece{Piece: stream.Piece{Messages: messages}}, false); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestViewName(t *testing.T) {
	long := strings.Repeat("long", 20)
	names := map[string]string{}
	for _, resource := range []string{"pods", "deployments.apps", "widgets.example.com",
		"evil\"; DROP TABLE x; --.example.com", long + ".a", long + ".b",
		"gadgets.a-b.example.com", "gadgets.a.b.example.com", "gadgets.a--b.example.com", "gadgets-a.b.example.com", "a_b",
		"a.b"} {
		name := ViewName(resource)
		if len(name) > maxName || strings.ContainsAny(name, "\"'; .-") || names[name] != "" {
			t.Errorf("the view of %s is %s, as of %s", resource, name, names[name])
		}
		names[name] = resource
	}
	if names["current_deployments_apps"] != "deployments.apps" ||
		names["current_gadgets_a__b_example_com"] != "gadgets.a-b.example.com" {
		t.Error(names)
	}
}
