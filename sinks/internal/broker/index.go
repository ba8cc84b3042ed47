package broker

import (
	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
)

// Index has the delivered objects of all streams: resource → key → entry.
type Index map[string]map[keepwatch.Key]stream.Entry

// Put adds or replaces an object.
func (x Index) Put(resource string, e stream.Entry) {
	if x[resource] == nil {
		x[resource] = map[keepwatch.Key]stream.Entry{}
	}
	x[resource][e.Key] = e
}

// Remove removes an object, if it is there.
func (x Index) Remove(resource string, key keepwatch.Key) { delete(x[resource], key) }

// Entries returns the objects of a stream.
func (x Index) Entries(id stream.Identity) []stream.Entry {
	var entries []stream.Entry
	for key, e := range x[id.Resource] {
		if id.Namespace == "" || key.Namespace == id.Namespace {
			entries = append(entries, e)
		}
	}
	return entries
}
