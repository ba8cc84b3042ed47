// Package item holds what the stores of informers hold: one state of one object,
// as Go code sees it.
package item

import (
	"reflect"

	"github.com/keepwatch/keepwatch"
)

var _ keepwatch.Object = (*Item)(nil)

// Item is one state of an object, or the record that it exists but can't be
// shown.
type Item struct {
	// What a look-up needs lies together.
	key      keepwatch.Key
	value    any
	uid      keepwatch.UID
	revision keepwatch.Revision
	packed   Packed // in the place of value, if not nil
	rejected error
	sum      uint64 // of what it was made of; 0 if that is not known
}

// Packed is a value that is kept encoded. It may be used from any goroutine.
type Packed interface {
	// Unpack decodes the value, unless that was done lately.
	Unpack() any
	// Pack is another value of the same kind, encoded.
	Pack(value any) (Packed, error)
	// Size is how many bytes are kept.
	Size() int
}

// New makes an item. The value must not be changed any more.
func New(key keepwatch.Key, uid keepwatch.UID, revision keepwatch.Revision, value any) *Item {
	return &Item{key: key, uid: uid, revision: revision, value: value}
}

// Pack makes an item whose value is encoded.
func Pack(key keepwatch.Key, uid keepwatch.UID, revision keepwatch.Revision, value Packed) *Item {
	return &Item{key: key, uid: uid, revision: revision, packed: value}
}

// Showing is the item with another value in the place of its own, packed if that
// was; it is rejected if it can't be.
func (i *Item) Showing(value any) *Item {
	shown := *i
	if i.packed == nil {
		shown.value = value
		return &shown
	}
	var err error
	if shown.packed, err = i.packed.Pack(value); err != nil {
		return i.Rejected(err)
	}
	return &shown
}

// Rejected is the item without a value, because of err. It keeps the object's
// place: what is known of it can go on to be compared, counted and deleted.
func (i *Item) Rejected(err error) *Item {
	return &Item{key: i.key, uid: i.uid, revision: i.revision, rejected: err, sum: i.sum}
}

// MadeOf notes, before the item is handed on, the sum of what it was made of.
func (i *Item) MadeOf(sum uint64) *Item {
	i.sum = sum
	return i
}

// Sum is the sum of what the item was made of, 0 if that is not known. Items of one
// source that have the same one were made of the same.
func (i *Item) Sum() uint64 { return i.sum }

func (i *Item) Key() keepwatch.Key           { return i.key }
func (i *Item) UID() keepwatch.UID           { return i.uid }
func (i *Item) Revision() keepwatch.Revision { return i.revision }

// Packed reports whether the value is kept encoded.
func (i *Item) Packed() bool { return i.packed != nil }

// Value is the object; nil if it was rejected.
func (i *Item) Value() any {
	if i.packed != nil {
		return i.packed.Unpack()
	}
	return i.value
}

// Err is why the object was rejected, nil if it was not.
func (i *Item) Err() error { return i.rejected }

// Size estimates the bytes that the value takes in memory: some times what it is
// encoded, where the type knows that, and never less than its bare structure.
func (i *Item) Size() int {
	const structure, unknown = 1 << 10, 16 << 10
	if i.packed != nil {
		return i.packed.Size()
	}
	if sized, ok := i.value.(interface{ Size() int }); ok {
		return structure + 3*sized.Size()
	}
	return unknown
}

// Plain is the value if it is there as it is; ok is false if it was rejected or is
// packed.
func (i *Item) Plain() (value any, ok bool) { return i.value, i.rejected == nil && i.packed == nil }

// Equal reports whether the content is equal too. A store asks after the source
// went back in time, when an equal revision says nothing.
func (i *Item) Equal(o keepwatch.Object) bool {
	other, ok := o.(*Item)
	return ok && i.rejected == nil && other.rejected == nil && reflect.DeepEqual(i.Value(), other.Value())
}
