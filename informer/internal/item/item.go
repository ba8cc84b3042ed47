// Package item holds what the stores of informers hold: one state of one object,
// as Go code sees it.
package item

import "github.com/keepwatch/keepwatch"

var _ keepwatch.Object = (*Item)(nil)

// Item is one state of an object, or the record that it exists but can't be
// shown.
type Item struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
	value    any
	rejected error
}

// New makes an item. The value must not be changed any more.
func New(key keepwatch.Key, uid keepwatch.UID, revision keepwatch.Revision, value any) *Item {
	return &Item{key: key, uid: uid, revision: revision, value: value}
}

// Showing is the item with another value in the place of its own.
func (i *Item) Showing(value any) *Item { return New(i.key, i.uid, i.revision, value) }

// Rejected is the item without a value, because of err. It keeps the object's
// place: what is known of it can go on to be compared, counted and deleted.
func (i *Item) Rejected(err error) *Item {
	return &Item{key: i.key, uid: i.uid, revision: i.revision, rejected: err}
}

func (i *Item) Key() keepwatch.Key           { return i.key }
func (i *Item) UID() keepwatch.UID           { return i.uid }
func (i *Item) Revision() keepwatch.Revision { return i.revision }

// Value is the object; nil if it was rejected.
func (i *Item) Value() any { return i.value }

// Err is why the object was rejected, nil if it was not.
func (i *Item) Err() error { return i.rejected }

// Size estimates the bytes of the value: exactly as it is encoded, where the type
// knows that, else 4 KiB.
func (i *Item) Size() int {
	if sized, ok := i.value.(interface{ Size() int }); ok {
		return sized.Size()
	}
	return 4 << 10
}
