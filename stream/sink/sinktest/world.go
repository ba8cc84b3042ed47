package sinktest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
)

// object is one state of an invented object.
type object struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
	note     string
}

func (o *object) Key() keepwatch.Key           { return o.key }
func (o *object) UID() keepwatch.UID           { return o.uid }
func (o *object) Revision() keepwatch.Revision { return o.revision }

type metadata struct {
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
}

// body is the JSON of an object.
type body struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Note       string   `json:"note,omitempty"`
}

func (o *object) body() body {
	return body{"v1", "Thing", metadata{o.key.Namespace, o.key.Name, string(o.uid), o.revision.String()}, o.note}
}

func (o *object) JSON() []byte { return encode(o.body()) }

func (o *object) Metadata() []byte {
	b := o.body()
	b.Note = ""
	return encode(b)
}

func encode(b body) []byte {
	text, err := json.Marshal(b)
	if err != nil {
		panic(err) // strings
	}
	return text
}

// id names an object of a world.
type id struct {
	resource string
	key      keepwatch.Key
}

// write is one committed write; a nil object is a deletion.
type write struct {
	id
	revision keepwatch.Revision
	object   *object
}

// epoch is the history since a restore, and what it began with.
type epoch struct {
	base   keepwatch.Revision
	start  map[id]*object
	writes []write
}

// at returns the state at a revision of the epoch, or nil if the revision is not in it.
func (e *epoch) at(r keepwatch.Revision) map[id]*object {
	if r < e.base || r > e.head() {
		return nil
	}
	state := maps.Clone(e.start)
	for _, w := range e.writes {
		switch {
		case w.revision > r:
			return state
		case w.object == nil:
			delete(state, w.id)
		default:
			state[w.id] = w.object
		}
	}
	return state
}

func (e *epoch) head() keepwatch.Revision {
	if len(e.writes) == 0 {
		return e.base
	}
	return e.writes[len(e.writes)-1].revision
}

// world is the etcd of several resources. It is safe for concurrent use.
type world struct {
	mu        sync.Mutex
	random    *rand.Rand
	resources []string
	epochs    []*epoch
	compacted keepwatch.Revision
	broken    int           // how often all watches were ended
	changed   chan struct{} // closed with the next change
	created   int
}

func newWorld(seed uint64, first keepwatch.Revision, resources ...string) *world {
	return &world{
		random: rand.New(rand.NewPCG(seed, uint64(first))), resources: resources, compacted: first,
		epochs: []*epoch{{base: first, start: map[id]*object{}}}, changed: make(chan struct{}),
	}
}

func (w *world) epoch() *epoch { return w.epochs[len(w.epochs)-1] }

// wake wakes the watches that wait for a change. w.mu is locked.
func (w *world) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// notes are contents; some of them are hard to store.
var notes = []string{"plain", "NUL \x00 in the middle", "backslash-u \\u0000 as text", "quote ' and \" and \\",
	"snow ☃ and 🙂", "$1 ?1 :x"}

// write commits n random writes.
func (w *world) write(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.epoch()
	state := e.at(e.head())
	for range n {
		revision := e.head() + 1 + keepwatch.Revision(w.random.IntN(3))
		target := id{w.resources[w.random.IntN(len(w.resources))],
			keepwatch.Key{Namespace: fmt.Sprint("ns-", w.random.IntN(2)), Name: fmt.Sprint("n-", w.random.IntN(12))}}
		prior := state[target]
		uid := keepwatch.UID("")
		switch {
		case prior == nil:
			w.created++
			uid = keepwatch.UID(fmt.Sprintf("%s-%d", target.resource, w.created))
		case w.random.IntN(4) == 0:
			e.writes = append(e.writes, write{target, revision, nil})
			delete(state, target)
			continue
		default:
			uid = prior.uid
		}
		o := &object{target.key, uid, revision, fmt.Sprint(notes[w.random.IntN(len(notes))], " ", revision)}
		e.writes = append(e.writes, write{target, revision, o})
		state[target] = o
	}
	w.wake()
}

// compact forgets the history, and ends all watches with probability 1/2.
func (w *world) compact() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.compacted = w.epoch().head()
	if w.random.IntN(2) == 0 {
		w.broken++
	}
	w.wake()
}

// disconnect ends all watches.
func (w *world) disconnect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken++
	w.wake()
}

// restore goes back to an earlier revision, and ends all watches.
func (w *world) restore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.epoch()
	back := w.random.Uint64N(uint64(e.head()-w.compacted) + 1)
	base := e.head() - keepwatch.Revision(back)
	w.epochs = append(w.epochs, &epoch{base: base, start: e.at(base)})
	w.compacted = base
	w.broken++
	w.wake()
}

// head returns the newest revision and the state there.
func (w *world) head() (keepwatch.Revision, map[id]*object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.epoch()
	return e.head(), e.at(e.head())
}

// at returns the states that a revision had in any epoch.
func (w *world) at(r keepwatch.Revision) (states []map[id]*object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.epochs {
		if s := e.at(r); s != nil {
			states = append(states, s)
		}
	}
	return states
}

// history returns the history of a resource for package check.
func (w *world) history(resource string) check.History {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := check.History{Content: func(o keepwatch.Object) string {
		if o, ok := o.(*object); ok {
			return o.note
		}
		return ""
	}}
	for i, e := range w.epochs {
		c := check.Epoch{Base: e.base, Last: e.head()}
		if i == 0 {
			c.Base = 0
		}
		for _, x := range e.writes {
			if x.resource != resource {
				continue
			}
			converted := check.Write{Revision: x.revision, Key: x.key}
			if x.object != nil {
				converted.Object = x.object
			}
			c.Writes = append(c.Writes, converted)
		}
		h.Epochs = append(h.Epochs, c)
	}
	return h
}
