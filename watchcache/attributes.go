package watchcache

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/keepwatch/keepwatch"
)

var (
	_ labels.Labels = (*attributes)(nil)
	_ fields.Fields = (*attributes)(nil)
)

// attributes are an object's labels, or the fields that selectors can name, in a third of a map's
// memory. They never change.
type attributes struct {
	names  []string // in order, shared by all objects that have the same ones
	values []string // of each name
}

// Lookup returns the value of a name, and whether it has one.
func (a *attributes) Lookup(name string) (value string, exists bool) {
	i, exists := slices.BinarySearch(a.names, name)
	if !exists {
		return "", false
	}
	return a.values[i], true
}

// Has reports whether a name has a value.
func (a *attributes) Has(name string) bool {
	_, exists := a.Lookup(name)
	return exists
}

// Get returns the value of a name, empty if it has none.
func (a *attributes) Get(name string) string {
	value, _ := a.Lookup(name)
	return value
}

func (a *attributes) equal(b *attributes) bool {
	return slices.Equal(a.names, b.names) && slices.Equal(a.values, b.values)
}

// selectedAs reports whether every selector judges two contents of the same key alike. It returns
// false for contents that are not decoded.
func (c *content) selectedAs(d *content) bool {
	return c.encoding != encoded && d.encoding != encoded && c.uid == d.uid && c.labels.equal(&d.labels) && c.fields.equal(&d.fields)
}

const (
	// internedStrings bounds how many strings, and lists of names, an interner stores.
	internedStrings = 1 << 14
	// internedLength bounds their length in bytes: longer ones hardly repeat.
	internedLength = 128
)

// interner returns one string for equal strings. The zero value is ready for use, by any
// goroutine. If it forgets a string, the string is stored twice, which is never wrong.
type interner struct {
	mu      sync.Mutex
	strings map[string]string
	names   map[string][]string
}

// attributes returns the attributes of an object with a key, whose text they share.
func (in *interner) attributes(key keepwatch.Key, set map[string]string) attributes {
	if len(set) == 0 {
		return attributes{}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	a := attributes{names: in.list(slices.Sorted(maps.Keys(set))), values: make([]string, len(set))}
	for i, name := range a.names {
		a.values[i] = in.text(key, set[name])
	}
	return a
}

// texts returns the values under which an index finds an object.
func (in *interner) texts(key keepwatch.Key, list []string) []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	interned := make([]string, len(list))
	for i, s := range list {
		interned[i] = in.text(key, s)
	}
	return interned
}

// text returns s. in.mu is locked.
func (in *interner) text(key keepwatch.Key, s string) string {
	switch {
	case s == key.Name:
		return key.Name
	case s == key.Namespace:
		return key.Namespace
	}
	return intern(&in.strings, s, s)
}

// list returns names. in.mu is locked.
func (in *interner) list(names []string) []string {
	return intern(&in.names, strings.Join(names, "\x00"), names)
}

// intern returns the value that is stored by a text, or stores value.
func intern[T any](stored *map[string]T, text string, value T) T {
	if len(text) > internedLength {
		return value
	}
	if before, ok := (*stored)[text]; ok {
		return before
	}
	if *stored == nil || len(*stored) == internedStrings {
		*stored = map[string]T{}
	}
	(*stored)[text] = value
	return value
}
