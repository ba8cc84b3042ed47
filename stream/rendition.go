package stream

import (
	"bytes"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Rendition is which content of one revision of an object the consumer has. A revision has more than one if the
// definition of the type changes (a default is added, a field pruned, a conversion switched), or the version of the
// server: no event says so, and only a list shows it (kubernetes #71138, #74105).
type Rendition struct {
	// Sum is a hash of the content, 0 if it is not known.
	Sum uint64 `json:"sum,omitempty,string"`
	// Number counts the other contents of the revision that were delivered before.
	Number uint64 `json:"number,omitempty"`
}

// changed reports whether a content differs from this one. One whose sum is not known does not.
func (r Rendition) changed(sum uint64) bool { return r.Sum != 0 && sum != 0 && r.Sum != sum }

// next returns the rendition of a content of the same revision.
func (r Rendition) next(sum uint64) Rendition {
	if r.changed(sum) {
		r.Number++
	}
	if sum != 0 {
		r.Sum = sum
	}
	return r
}

// suffix returns the end of the id of an event: nothing for the first content of a revision. It is the same when the
// event is repeated, and another one for each content, also for one that comes back.
func (r Rendition) suffix() string {
	if r.Number == 0 {
		return ""
	}
	return fmt.Sprintf("/%d-%016x", r.Number, r.Sum)
}

// sumOf returns a hash of an object's text, except for a type in front, which a list may not have: 0 if the server has
// sent a part of the object only, metadata or a row. kube-apiserver writes one state always in the same text: the
// members of Go types in their order, and those of maps sorted. The object is projected already: from a hash of a
// short value that the projection hides, everybody who may read the hash could guess the value.
func sumOf(o Object) uint64 {
	text := bytes.TrimPrefix(o.JSON(), []byte("{"))
	for _, member := range [...]string{`"kind":"`, `"apiVersion":"`, `"kind":"`} {
		rest, typed := bytes.CutPrefix(text, []byte(member))
		if !typed {
			continue
		}
		value, rest, _ := bytes.Cut(rest, []byte(`",`))
		if string(value) == "PartialObjectMetadata" {
			return 0
		}
		text = rest
	}
	if len(text) == 0 {
		return 0
	}
	return xxhash.Sum64(text)
}
