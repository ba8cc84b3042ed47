package watchcache

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/intern"
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

// valuesOf returns the value of a name as a list, which must not be changed, nil if it has none.
func (a *attributes) valuesOf(name string) []string {
	i, exists := slices.BinarySearch(a.names, name)
	if !exists {
		return nil
	}
	return a.values[i : i+1 : i+1]
}

func (a *attributes) equal(b *attributes) bool {
	return slices.Equal(a.names, b.names) && slices.Equal(a.values, b.values)
}

// selectedAs reports whether every selector judges two contents of the same key alike. It returns
// false for contents that are not decoded.
func (c *content) selectedAs(d *content) bool {
	return c.encoding != encoded && d.encoding != encoded && c.uid == d.uid && c.labels.equal(&d.labels) &&
		c.fields.equal(&d.fields)
}

const (
	// internedStrings bounds how many strings, and lists of names, an interner stores;
	// internedLength their length in bytes.
	internedStrings = 1 << 14
	internedLength  = 128
)

// interner returns one string for equal strings. It is safe for concurrent use.
type interner struct {
	mu      sync.Mutex
	strings *intern.Table[string]
	names   *intern.Table[[]string] // by the joined names
}

func newInterner() *interner {
	return &interner{
		strings: intern.New[string](internedStrings, internedLength),
		names:   intern.New[[]string](internedStrings, internedLength),
	}
}

// attributes returns the attributes of an object with a key, whose text they share.
func (in *interner) attributes(key keepwatch.Key, set map[string]string) attributes {
	if len(set) == 0 {
		return attributes{}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	names := slices.Sorted(maps.Keys(set))
	a := attributes{
		names:  in.names.Of(strings.Join(names, "\x00"), func(string) []string { return names }),
		values: make([]string, len(set)),
	}
	for i, name := range a.names {
		a.values[i] = in.text(key, set[name])
	}
	return a
}

// texts returns the values under which an index finds an object.
func (in *interner) texts(key keepwatch.Key, values []string) []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	interned := make([]string, len(values))
	for i, s := range values {
		interned[i] = in.text(key, s)
	}
	return interned
}

// text returns s. in.mu is locked.
func (in *interner) text(key keepwatch.Key, s string) string {
	switch s {
	case key.Name:
		return key.Name
	case key.Namespace:
		return key.Namespace
	}
	return in.strings.Of(s, intern.Text)
}
