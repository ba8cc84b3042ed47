package storage

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

// attributes are an object's labels, or its fields that selectors know: what a map
// of them says in a third of its memory. They never change.
type attributes struct {
	names  []string // in order, shared by all that have the same ones
	values []string // of each name
}

// Lookup is the value of a name, and whether it has one.
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

// Get is the value of a name, empty if it has none.
func (a *attributes) Get(name string) string {
	value, _ := a.Lookup(name)
	return value
}

func (a *attributes) equal(b *attributes) bool {
	return slices.Equal(a.names, b.names) && slices.Equal(a.values, b.values)
}

// selectedAs reports whether every selector judges two contents of the same key alike. Of
// what nobody has read that is not known.
func (c *content) selectedAs(d *content) bool {
	return c.form != sealed && d.form != sealed && c.uid == d.uid && c.labels.equal(&d.labels) && c.fields.equal(&d.fields)
}

const (
	// internedStrings bounds how many strings, and lists of names, an interner knows.
	internedStrings = 1 << 14
	// internedLength bounds them in bytes: longer ones hardly repeat.
	internedLength = 128
)

// interner makes one of strings that are equal. The zero value is ready for use, by
// any goroutine. What it forgets is never wrong, only kept twice.
type interner struct {
	mu      sync.Mutex
	strings map[string]string
	names   map[string][]string
}

// attributes are those of an object with a key, of which they don't repeat the text.
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

// texts is what an index finds an object by.
func (in *interner) texts(key keepwatch.Key, list []string) []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	kept := make([]string, len(list))
	for i, s := range list {
		kept[i] = in.text(key, s)
	}
	return kept
}

// text is s. in.mu is held.
func (in *interner) text(key keepwatch.Key, s string) string {
	switch {
	case s == key.Name:
		return key.Name
	case s == key.Namespace:
		return key.Namespace
	}
	return remember(&in.strings, s, s)
}

// list is names. in.mu is held.
func (in *interner) list(names []string) []string {
	return remember(&in.names, strings.Join(names, "\x00"), names)
}

// remember is what is known by a text: made, unless it was known already.
func remember[T any](known *map[string]T, text string, made T) T {
	if len(text) > internedLength {
		return made
	}
	if before, ok := (*known)[text]; ok {
		return before
	}
	if *known == nil || len(*known) == internedStrings {
		*known = map[string]T{}
	}
	(*known)[text] = made
	return made
}
