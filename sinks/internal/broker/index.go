package broker

import (
	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
)

// Index has the delivered objects of all streams.
type Index struct {
	all map[string]*stream.Entries // by resource
	// parts has the objects of a resource by namespace, once Entries was called for one of its namespaces.
	parts map[string]map[string]*stream.Entries
}

// NewIndex returns an empty index.
func NewIndex() *Index {
	return &Index{map[string]*stream.Entries{}, map[string]map[string]*stream.Entries{}}
}

// Put adds or replaces an object. No Put or Remove follows Entries.
func (x *Index) Put(resource string, e stream.Entry) { put(x.all, resource, e) }

func put(in map[string]*stream.Entries, key string, e stream.Entry) {
	if in[key] == nil {
		in[key] = stream.NewEntries()
	}
	in[key].Put(e)
}

// Remove removes an object, if it is there.
func (x *Index) Remove(resource string, key keepwatch.Key) {
	if entries := x.all[resource]; entries != nil {
		entries.Remove(key)
	}
}

// Entries returns the objects of a stream, nil if there are none. The first call for a namespace reads the objects of
// all namespaces.
func (x *Index) Entries(id stream.Identity) *stream.Entries {
	if id.Namespace == "" {
		return x.all[id.Resource]
	}
	if x.parts[id.Resource] == nil {
		parts := map[string]*stream.Entries{}
		for e := range x.all[id.Resource].All() {
			put(parts, e.Key.Namespace, e)
		}
		x.parts[id.Resource] = parts
	}
	return x.parts[id.Resource][id.Namespace]
}
