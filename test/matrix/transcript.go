package matrix

import (
	"maps"
	"slices"
	"strconv"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

// object is an object as far as a client's line has it.
type object struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
}

func (o object) Key() keepwatch.Key           { return o.key }
func (o object) UID() keepwatch.UID           { return o.uid }
func (o object) Revision() keepwatch.Revision { return o.revision }

// since returns the writes since the baseline.
func (o observed) since() []check.Write {
	i := slices.IndexFunc(o.writes, func(w check.Write) bool { return w.Revision > o.baseline.revision })
	if i < 0 {
		return nil
	}
	return o.writes[i:]
}

// judge returns the violations of package check's promises in a client's events. A client does not tell
// where its state comes from a list, so a gap is no violation: one begins with each event that is not the
// next write, and ends when the client's state is one of the server's again.
func judge(o observed) []check.Violation {
	t := transcriber{
		namespace: o.namespace, writes: o.since(), cursor: o.baseline.revision,
		client: maps.Clone(o.baseline.fold), server: stateAt(o.writes, o.baseline.revision),
	}
	for _, a := range o.lines() {
		t.line(a.Line)
	}
	t.finish(o.newest)
	history := check.History{Epochs: []check.Epoch{{Writes: o.writes, Last: o.newest}}}
	return check.Judge(history, nil, check.Transcript{From: o.baseline.revision, Records: t.records})
}

// transcriber makes records of lines.
type transcriber struct {
	namespace string
	writes    []check.Write      // behind cursor
	cursor    keepwatch.Revision // up to which records go
	server    fold               // at cursor
	client    fold               // after all lines
	gap       []keepwatch.Change // since cursor; nil outside of a gap
	records   []check.Record
}

func (t *transcriber) line(line clients.Line) {
	switch line.Type {
	case "ADDED", "MODIFIED", "DELETED":
		t.event(line)
	case "LISTED":
		t.listed(line)
	}
}

// event adds an event: as a batch if it is the next write, or to the gap.
func (t *transcriber) event(line clients.Line) {
	if line.Type != "DELETED" && t.client[line.Name] == line.UID+"/"+line.Revision {
		return // counted as a duplicate
	}
	change := t.change(line)
	before := uidOf(t.client[line.Name])
	t.client.apply(line)
	if t.gap == nil && len(t.writes) > 0 && isWrite(t.writes[0], change, before) {
		next := t.writes[0]
		change.Revision = next.Revision
		t.deliver(keepwatch.Batch{From: t.cursor, To: next.Revision, Changes: []keepwatch.Change{change}}, 1)
		return
	}
	t.gap = append(t.gap, change)
	t.close()
}

// isWrite reports whether a change of the object with a UID is a write.
func isWrite(w check.Write, c keepwatch.Change, before string) bool {
	if w.Key != c.Object.Key() {
		return false
	}
	if c.Type == keepwatch.Deleted {
		return w.Object == nil && before == string(c.Object.UID())
	}
	return w.Object != nil && stateOf(w.Object) == stateOf(c.Object)
}

// listed adds the changes that turn the client's state into a list.
func (t *transcriber) listed(line clients.Line) {
	for _, name := range slices.Sorted(maps.Keys(t.client)) {
		if uidOf(line.Objects[name]) != uidOf(t.client[name]) {
			t.gap = append(t.gap, t.changeTo("DELETED", name, t.client[name]))
			delete(t.client, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(line.Objects)) {
		kind := "ADDED"
		if t.client[name] == line.Objects[name] {
			continue
		} else if t.client[name] != "" {
			kind = "MODIFIED"
		}
		t.gap = append(t.gap, t.changeTo(kind, name, line.Objects[name]))
	}
	t.client.apply(line)
	if len(t.gap) > 0 {
		t.close()
	}
}

// close ends the gap if the client's state is the server's at a revision.
func (t *transcriber) close() {
	server := maps.Clone(t.server)
	for n := 0; ; n++ {
		if maps.Equal(server, t.client) {
			to := t.cursor
			if n > 0 {
				to = t.writes[n-1].Revision
			}
			t.end(to, n)
			return
		}
		if n == len(t.writes) {
			return
		}
		server.commit(t.writes[n])
	}
}

// end ends the gap at a revision, n writes behind the cursor.
func (t *transcriber) end(to keepwatch.Revision, n int) {
	for i := range t.gap {
		if t.gap[i].Type == keepwatch.Deleted {
			t.gap[i].Revision = to
		}
	}
	changes := t.gap
	t.gap = nil
	t.deliver(keepwatch.Gap{From: t.cursor, To: to, Reason: keepwatch.GapExpired, Changes: changes}, n)
}

func (t *transcriber) deliver(d keepwatch.Delivery, n int) {
	t.records = append(t.records, check.Received{Delivery: d})
	for _, w := range t.writes[:n] {
		t.server.commit(w)
		t.cursor = w.Revision
	}
	t.writes = t.writes[n:]
}

// finish ends a gap that is still open with the newest state, which the client should have.
func (t *transcriber) finish(newest keepwatch.Revision) {
	if t.gap != nil {
		t.end(newest, len(t.writes))
	}
}

// change returns the change of a line. Not all clients tell ADDED from MODIFIED, so the client's state
// decides, except if it has another object with the name: that needs a deletion first.
func (t *transcriber) change(line clients.Line) keepwatch.Change {
	kind := line.Type
	switch before, known := t.client[line.Name]; {
	case kind == "DELETED":
	case !known:
		kind = "ADDED"
	case uidOf(before) == line.UID:
		kind = "MODIFIED"
	}
	return t.changeTo(kind, line.Name, line.UID+"/"+line.Revision)
}

var changeTypes = map[string]keepwatch.ChangeType{
	"ADDED": keepwatch.Added, "MODIFIED": keepwatch.Modified, "DELETED": keepwatch.Deleted,
}

func (t *transcriber) changeTo(kind, name, state string) keepwatch.Change {
	o := object{key: keepwatch.Key{Namespace: t.namespace, Name: name}, uid: keepwatch.UID(uidOf(state))}
	n, _ := strconv.ParseUint(state[len(uidOf(state))+1:], 10, 64)
	o.revision = keepwatch.Revision(n)
	return keepwatch.Change{Type: changeTypes[kind], Revision: o.revision, Object: o}
}
