package store

import (
	"sort"
	"unsafe"

	"github.com/keepwatch/keepwatch"
)

// replaced is what is kept of one change behind the window: the state before it.
type replaced struct {
	key      keepwatch.Key
	prior    keepwatch.Object   // what Options.Attributes left of it; nil if there was none
	revision keepwatch.Revision // of the change, or of the list that showed it
}

const replacedBytes = int64(unsafe.Sizeof(weighed[replaced]{}))

// attributeLog is what filters by content need of the history behind the window, oldest
// first: the states that changes have replaced, without those that every filter judges
// like the next one. The state of an object at a revision is the prior of its first change
// since then, here or in the window, or else the one that it has now, as far as any filter
// can tell.
//
// It is of the store's epoch, and never changes once it is part of a view.
type attributeLog struct {
	queue[replaced]
	kept bool // Options.Attributes is set
	// horizon is the oldest revision since which the log is complete.
	horizon keepwatch.Revision
}

// after is the log after an edition of the state. A new epoch begins with an empty one.
func (l attributeLog) after(e *edition) attributeLog {
	if e.base.revision == 0 || e.epoch != e.base.epoch {
		return attributeLog{kept: l.kept, horizon: e.revision}
	}
	return l
}

// add takes a moment that the window drops, and keeps the bound.
func (l attributeLog) add(m moment, epoch uint64, o Options) attributeLog {
	if !l.kept || m.from.Epoch != epoch {
		return l
	}
	for _, c := range m.changes() {
		r := replaced{key: c.Object.Key(), revision: c.Revision}
		if m.gap() {
			r.revision = m.to.Revision
		}
		bytes := replacedBytes
		if c.Prior != nil {
			next := c.Object
			if c.Type == keepwatch.Deleted {
				next = nil
			}
			if r.prior = o.Attributes(c.Prior, next); r.prior == nil {
				continue
			}
			bytes += int64(o.Size(r.prior))
		}
		l.queue = l.push(r, bytes)
		for l.bytes > o.AttributeBytes {
			l.horizon = l.at(0).revision
			l.queue = l.drop()
		}
	}
	return l
}

// knows reports whether the log is complete since a revision.
func (l attributeLog) knows(r keepwatch.Revision) bool { return r >= l.horizon }

// since calls yield for what was replaced after a revision, oldest first.
func (l attributeLog) since(r keepwatch.Revision, yield func(replaced)) {
	for i := sort.Search(l.len(), func(i int) bool { return l.at(i).revision > r }); i < l.len(); i++ {
		yield(l.at(i))
	}
}
