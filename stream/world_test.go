package stream

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// world is a source's whole history, with the revision up to which it is compacted.
type world struct {
	history   []keepwatch.Change // its revisions are 1, 2, 3, …
	compacted keepwatch.Revision // watches begin here or later
	created   int
	hidden    map[keepwatch.Revision]bool // revisions at which the server did not show the resource
}

func (w *world) revision() keepwatch.Revision { return keepwatch.Revision(len(w.history)) }

// at returns the state at a revision, by key.
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
	o, exists := w.at(w.revision())["default/"+name]
	o.revision = w.revision() + 1
	c := keepwatch.Change{Type: keepwatch.Modified, Revision: o.revision}
	switch {
	case !exists:
		w.created++
		c.Type = keepwatch.Added
		o.key = keepwatch.Key{Namespace: "default", Name: name}
		o.uid = keepwatch.UID(fmt.Sprintf("%s.%d", name, w.created))
	case rapid.Bool().Draw(t, "delete"):
		c.Type = keepwatch.Deleted
	}
	o.note = fmt.Sprint("written at ", o.revision)
	c.Object = o
	w.history = append(w.history, c)
}

// deleteAll deletes every object.
func (w *world) deleteAll() {
	for _, o := range w.at(w.revision()) {
		o.revision = w.revision() + 1
		w.history = append(w.history, keepwatch.Change{Type: keepwatch.Deleted, Revision: o.revision, Object: o})
	}
}

// hide makes the current revision one at which the server does not show the resource.
func (w *world) hide() {
	if w.hidden == nil {
		w.hidden = map[keepwatch.Revision]bool{}
	}
	w.hidden[w.revision()] = true
}

// objects returns the state at a revision as a list has it, in any order.
func (w *world) objects(t *rapid.T, r keepwatch.Revision) []keepwatch.Object {
	state := w.at(r)
	var objects []keepwatch.Object
	for _, key := range slices.Sorted(maps.Keys(state)) {
		objects = append(objects, state[key])
	}
	return rapid.Permutation(objects).Draw(t, "order")
}

// fold is a consumer's state. An event whose id it has seen changes nothing. It records
// every line that no stream may contain. The world has no rewinds, so the ids stay.
type fold struct {
	world     *world
	objects   map[string]line
	ids       map[string]bool
	deleted   map[string]bool // UIDs
	delivered map[string]bool // UIDs
	synced    keepwatch.Revision
	errors    []string
}

func newFold(w *world) *fold {
	return &fold{world: w, objects: map[string]line{}, ids: map[string]bool{}, deleted: map[string]bool{},
		delivered: map[string]bool{}}
}

// read folds the output of one run. It ignores a last line without a line break.
func (f *fold) read(output string) {
	f.synced = 0 // the last SYNCED of the run before may not be committed
	for text := range strings.Lines(output) {
		if !strings.HasSuffix(text, "\n") {
			return
		}
		l, err := parse(text)
		if err != nil {
			f.errorf("%v: %s", err, text)
			return
		}
		f.add(l)
	}
}

func (f *fold) add(l line) {
	revision := func(text string) keepwatch.Revision {
		r, err := keepwatch.ParseRevision(text)
		if err != nil {
			f.errorf("%s: %v", l.Type, err)
		}
		return r
	}
	switch l.Type {
	case "SYNCED":
		f.synced = revision(l.Revision)
		f.compare(f.synced)
		if l.Count != len(f.objects) {
			f.errorf("SYNCED counts %d of %d", l.Count, len(f.objects))
		}
	case "BOOKMARK":
		f.compare(revision(l.Revision))
	case "GAP":
		if revision(l.From) < f.synced || revision(l.To) < revision(l.From) {
			f.errorf("GAP %s-%s behind SYNCED %d", l.From, l.To, f.synced)
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
	prior, known := f.objects[key]
	was := prior.Object.Metadata
	if known && was.UID != m.UID {
		f.errorf("%s replaces %s by %s without a deletion", l.ID, was.UID, m.UID)
	}
	if l.Type == "DELETED" {
		f.deleted[m.UID] = true
		delete(f.objects, key)
		return
	}
	if known && len(m.ResourceVersion) == len(was.ResourceVersion) && m.ResourceVersion < was.ResourceVersion {
		f.errorf("%s goes back from %s", l.ID, was.ResourceVersion)
	}
	if f.deleted[m.UID] && len(f.world.hidden) == 0 {
		f.errorf("%s shows something deleted", l.ID)
	}
	delete(f.deleted, m.UID)
	f.delivered[m.UID] = true
	f.objects[key] = l
}

// compare compares the fold with the source's state.
func (f *fold) compare(r keepwatch.Revision) {
	if r > f.world.revision() {
		f.errorf("revision %d does not exist yet", r)
		return
	}
	if len(f.objects) == 0 && f.world.hidden[r] {
		return
	}
	want := f.world.at(r)
	for key, o := range want {
		if got := f.objects[key].Object; got.Metadata.UID != string(o.uid) ||
			got.Metadata.ResourceVersion != o.revision.String() || got.Note != o.note {
			f.errorf("at %d %s is %+v, want %+v", r, key, got, o)
		}
	}
	for key, l := range f.objects {
		if _, ok := want[key]; !ok {
			f.errorf("at %d the source has no %s (%s)", r, key, l.ID)
		}
	}
	for uid := range f.delivered {
		if !f.deleted[uid] && !f.has(uid) {
			f.errorf("the deletion of %s was not delivered", uid)
		}
	}
}

func (f *fold) has(uid string) bool {
	for _, l := range f.objects {
		if l.Object.Metadata.UID == uid {
			return true
		}
	}
	return false
}

func (f *fold) errorf(format string, args ...any) {
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}
