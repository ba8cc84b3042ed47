// Package item has the objects of an informer's store: one state of one object, with its Go
// value.
package item

import (
	"reflect"

	"github.com/keepwatch/keepwatch"
)

var _ keepwatch.Object = (*Item)(nil)

// Item is one state of an object. A rejected item records that the object exists, and has no
// value.
type Item struct {
	// The fields that a lookup reads are adjacent.
	key      keepwatch.Key
	value    any
	uid      keepwatch.UID
	revision keepwatch.Revision
	packed   Packed // instead of value, if not nil
	sum      uint64 // of the encoded object; 0 if unknown
	size     int    // of the value; 0 if it was not measured
}

// Packed is an encoded value. Any goroutine may use it.
type Packed interface {
	// Unpack returns the decoded value. It caches recently decoded values.
	Unpack() any
	// Pack encodes another value of the same type.
	Pack(value any) (Packed, error)
	// Size returns the number of encoded bytes.
	Size() int
}

// rejection is packed instead of a value.
type rejection struct{ err error }

func (r rejection) Unpack() any              { return nil }
func (r rejection) Pack(any) (Packed, error) { return nil, r.err }
func (r rejection) Size() int                { return structure }

// New returns an item. The value must not change any more.
func New(key keepwatch.Key, uid keepwatch.UID, revision keepwatch.Revision, value any) *Item {
	return &Item{key: key, uid: uid, revision: revision, value: value}
}

// Pack returns an item whose value is encoded.
func Pack(key keepwatch.Key, uid keepwatch.UID, revision keepwatch.Revision, value Packed) *Item {
	return &Item{key: key, uid: uid, revision: revision, packed: value}
}

// Showing returns the item with another value, which is packed if the item's was. If it cannot be
// packed, the item is rejected.
func (i *Item) Showing(value any) *Item {
	shown := *i
	shown.size = 0
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

// Rejected returns the item without a value, because of err. Its key, UID and revision can still
// be compared, counted and deleted.
func (i *Item) Rejected(err error) *Item {
	return &Item{key: i.key, uid: i.uid, revision: i.revision, packed: rejection{err}, sum: i.sum}
}

// MadeOf sets the hash of the encoded object. It must be called before the item is shared.
func (i *Item) MadeOf(sum uint64) *Item {
	i.sum = sum
	return i
}

// Sum returns the hash of the encoded object, 0 if it is unknown. Items of one source with the
// same hash have the same encoding.
func (i *Item) Sum() uint64 { return i.sum }

func (i *Item) Key() keepwatch.Key           { return i.key }
func (i *Item) UID() keepwatch.UID           { return i.uid }
func (i *Item) Revision() keepwatch.Revision { return i.revision }

// Packed reports whether the value is encoded.
func (i *Item) Packed() bool { return i.packed != nil && i.Err() == nil }

// Value returns the object, nil if it was rejected.
func (i *Item) Value() any {
	if i.packed != nil {
		return i.packed.Unpack()
	}
	return i.value
}

// Err returns why the object was rejected, nil if it was not.
func (i *Item) Err() error {
	r, _ := i.packed.(rejection)
	return r.err
}

// Measured measures the value, so that Size does not read it. It must be called before the item is shared: handlers
// may change a value, although they must not, while the store asks for its size.
func (i *Item) Measured() *Item {
	if i.packed == nil && i.size == 0 { // else it may be shared
		i.size = sizeOf(i.value)
	}
	return i
}

// Size estimates the value's bytes in memory.
func (i *Item) Size() int {
	switch {
	case i.packed != nil:
		return i.packed.Size()
	case i.size != 0:
		return i.size
	}
	return sizeOf(i.value)
}

// Plain returns the value. ok is false if the item was rejected or is packed.
func (i *Item) Plain() (value any, ok bool) { return i.value, i.packed == nil }

// IsStateOf reports whether the other item is certainly the same state of the same object, with the same encoding.
func (i *Item) IsStateOf(other *Item) bool {
	return i == other || i.sum != 0 && i.sum == other.sum && i.uid == other.uid && i.revision == other.revision
}

// Equal reports whether handlers see no difference between two items of equal revision: the encodings
// or the values are equal, or both were rejected. Only a list shows an equal revision twice.
func (i *Item) Equal(o keepwatch.Object) bool {
	other, ok := o.(*Item)
	switch {
	case !ok || (i.Err() == nil) != (other.Err() == nil):
		return false
	case i.Err() != nil || i == other || i.sum != 0 && i.sum == other.sum:
		return true
	}
	return reflect.DeepEqual(i.Value(), other.Value())
}
