package storage

import "sync/atomic"

// Form numbers the encodings of an object that readers keep with it. Which number
// means what is theirs to say.
type Form uint8

// Forms is how many there are.
const Forms = 5

// encoded is what an object is in one form. It never changes.
type encoded struct {
	bytes []byte
	used  atomic.Bool
}

// Keep keeps what a reader made of the object, until it is dropped or the object is
// garbage. It must not be changed any more.
func (o *Object) Keep(f Form, bytes []byte) {
	e := &encoded{bytes: bytes}
	e.used.Store(true)
	o.kept[f].Store(e)
}

// Kept is what is kept in a form, or nil.
func (o *Object) Kept(f Form) []byte {
	e := o.kept[f].Load()
	if e == nil {
		return nil
	}
	if !e.used.Load() {
		e.used.Store(true)
	}
	return e.bytes
}

// KeptBytes is how much is kept in all forms.
func (o *Object) KeptBytes() (n int64) {
	for i := range o.kept {
		if e := o.kept[i].Load(); e != nil {
			n += int64(len(e.bytes))
		}
	}
	return n
}

// Drop drops what was not asked for since the last Drop, and tells how much remains.
func (o *Object) Drop() (left int64) {
	for i := range o.kept {
		e := o.kept[i].Load()
		if e == nil {
			continue
		}
		if e.used.Swap(false) {
			left += int64(len(e.bytes))
		} else {
			o.kept[i].CompareAndSwap(e, nil)
		}
	}
	return left
}
