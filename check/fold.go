package check

import (
	"maps"
	"slices"

	"github.com/keepwatch/keepwatch"
)

// fold is a consumer's state after the deliveries so far.
type fold struct {
	history History
	objects map[keepwatch.Key]keepwatch.Object
	sum     uint64 // of the objects' fingerprints
}

func newFold(h History) *fold {
	return &fold{history: h, objects: map[keepwatch.Key]keepwatch.Object{}}
}

func (f *fold) put(o keepwatch.Object) {
	f.remove(o.Key())
	f.objects[o.Key()] = o
	f.sum += f.history.fingerprint(o)
}

func (f *fold) remove(key keepwatch.Key) {
	if o, ok := f.objects[key]; ok {
		f.sum -= f.history.fingerprint(o)
		delete(f.objects, key)
	}
}

// apply applies one change. The deletion of another UID than the object's changes nothing.
func (f *fold) apply(c keepwatch.Change) {
	prior := f.objects[c.Object.Key()]
	switch {
	case c.Type != keepwatch.Deleted:
		f.put(c.Object)
	case prior != nil && prior.UID() == c.Object.UID():
		f.remove(c.Object.Key())
	}
}

// difference returns the first key, in order, at which two folds differ.
func (f *fold) difference(o *fold) (key keepwatch.Key, ours, theirs keepwatch.Object, differ bool) {
	keys := slices.Collect(maps.Keys(f.objects))
	keys = slices.AppendSeq(keys, maps.Keys(o.objects))
	slices.SortFunc(keys, keepwatch.Key.Compare)
	for _, key := range keys {
		a, b := f.objects[key], o.objects[key]
		if a == nil || b == nil || !f.history.same(a, b) {
			return key, a, b, true
		}
	}
	return keepwatch.Key{}, nil, nil, false
}
