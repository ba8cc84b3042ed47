package stream

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// world is a source's whole history, and how much of it the source still has.
type world struct {
	history   []keepwatch.Change // its revisions are 1, 2, 3, …
	compacted keepwatch.Revision // watches begin here or later
	born      int
}

func (w *world) revision() keepwatch.Revision { return keepwatch.Revision(len(w.history)) }

// at is the state at a revision, by key.
func (w *world) at(r keepwatch.Revision) map[string]thing {
	state := map[string]thing{}
	for _, c := range w.history[:r] {
		o := c.Object.(thing)
		if c.Type == keepwatch.Deleted {
			delete(state, o.key.String())
		} else {
			state[o.key.String()] = o
		}
	}
	return state
}

// write changes a random object.
func (w *world) write(t *rapid.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name")
	o, alive := w.at(w.revision())["default/"+name]
	o.revision = w.revision() + 1
	c := keepwatch.Change{Type: keepwatch.Modified, Revision: o.revision}
	switch {
	case !alive:
		w.born++
		c.Type = keepwatch.Added
		o.key = keepwatch.Key{Namespace: "default", Name: name}
		o.uid = keepwatch.UID(fmt.Sprintf("%s.%d", name, w.born))
	case rapid.Bool().Draw(t, "delete"):
		c.Type = keepwatch.Deleted
	}
	o.note = fmt.Sprint("written at ", o.revision)
	c.Object = o
	w.history = append(w.history, c)
}

// objects are the state at a revision as a list shows it, in any order.
func (w *world) objects(t *rapid.T, r keepwatch.Revision) []keepwatch.Object {
	state := w.at(r)
	var objects []keepwatch.Object
	for _, key := range slices.Sorted(maps.Keys(state)) {
		objects = append(objects, state[key])
	}
	return rapid.Permutation(objects).Draw(t, "order")
}

// fold is what a consumer makes of all lines: events whose id it has seen change
// nothing. It knows what no stream may contain.
type fold struct {
	world   *world
	objects map[string]line
	ids     map[string]bool
	deleted map[string]bool // UIDs
	told    map[string]bool // UIDs
	synced  keepwatch.Revision
	wrong   []string
}

func newFold(w *world) *fold {
	return &fold{world: w, objects: map[string]line{}, ids: map[string]bool{}, deleted: map[string]bool{}, told: map[string]bool{}}
}

// read folds the output of one life. A last line without an end is no line.
func (f *fold) read(output string) {
	f.synced = 0 // what the life before told last may not be committed
	for text := range strings.Lines(output) {
		if !strings.HasSuffix(text, "\n") {
			return
		}
		l, err := parse(text)
		if err != nil {
			f.complain("%v: %s", err, text)
			return
		}
		f.add(l)
	}
}

func (f *fold) add(l line) {
	revision := func(text string) keepwatch.Revision {
		r, err := keepwatch.ParseRevision(text)
		if err != nil {
			f.complain("%s: %v", l.Type, err)
		}
		return r
	}
	switch l.Type {
	case "SYNCED":
		f.synced = revision(l.Revision)
		f.compare(f.synced)
		if l.Count != len(f.objects) {
			f.complain("SYNCED counts %d of %d", l.Count, len(f.objects))
		}
	case "BOOKMARK":
		f.compare(revision(l.Revision))
	case "GAP":
		if revision(l.From) < f.synced || revision(l.To) < revision(l.From) {
			f.complain("GAP %s-%s behind SYNCED %d", l.From, l.To, f.synced)
		}
	default:
		if !f.ids[l.ID] {
			f.ids[l.ID] = true
			f.event(l)
		}
	}
}

func (f *fold) event(l line) {
	m := l.Object.Metadata
	key := m.Namespace + "/" + m.Name
	held, known := f.objects[key]
	was := held.Object.Metadata
	if known && was.UID != m.UID {
		f.complain("%s shows %s in the place of %s", l.ID, m.UID, was.UID)
	}
	if l.Type == "DELETED" {
		f.deleted[m.UID] = true
		delete(f.objects, key)
		return
	}
	if known && len(m.ResourceVersion) == len(was.ResourceVersion) && m.ResourceVersion < was.ResourceVersion {
		f.complain("%s goes back from %s", l.ID, was.ResourceVersion)
	}
	if f.deleted[m.UID] {
		f.complain("%s shows something deleted", l.ID)
	}
	f.told[m.UID] = true
	f.objects[key] = l
}

// compare compares with the source's state.
func (f *fold) compare(r keepwatch.Revision) {
	if r > f.world.revision() {
		f.complain("revision %d does not exist yet", r)
		return
	}
	want := f.world.at(r)
	for key, o := range want {
		if got := f.objects[key].Object; got.Metadata.UID != string(o.uid) || got.Metadata.ResourceVersion != o.revision.String() || got.Note != o.note {
			f.complain("at %d %s is %+v, want %+v", r, key, got, o)
		}
	}
	for key, l := range f.objects {
		if _, ok := want[key]; !ok {
			f.complain("at %d there is no %s (%s)", r, key, l.ID)
		}
	}
	for uid := range f.told {
		if !f.deleted[uid] && !f.holds(uid) {
			f.complain("the deletion of %s was not told", uid)
		}
	}
}

func (f *fold) holds(uid string) bool {
	for _, l := range f.objects {
		if l.Object.Metadata.UID == uid {
			return true
		}
	}
	return false
}

func (f *fold) complain(format string, args ...any) {
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
}
