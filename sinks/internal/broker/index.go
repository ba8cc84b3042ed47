package broker

import (
	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
)

// Index has the delivered objects of all streams, by resource.
type Index map[string]*stream.Entries

// Put adds or replaces an object.
func (x Index) Put(resource string, e stream.Entry) {
	if x[resource] == nil {
		x[resource] = stream.NewEntries()
	}
	x[resource].Put(e)
}

// Remove removes an object, if it is there.
func (x Index) Remove(resource string, key keepwatch.Key) {
	if entries := x[resource]; entries != nil {
		entries.Remove(key)
	}
}

// Entries returns the objects of a stream: those of all namespaces are no copy.
func (x Index) Entries(id stream.Identity) *stream.Entries {
	if id.Namespace == "" {
		return x[id.Resource]
	}
	entries := stream.NewEntries()
	for e := range x[id.Resource].All() {
		if e.Key.Namespace == id.Namespace {
			entries.Put(e)
		}
	}
	return entries
}
