package store

import (
	"sort"
	"unsafe"

	"github.com/keepwatch/keepwatch"
)

// replaced is a change behind the window, reduced to the attributes of its prior state.
type replaced struct {
	key      keepwatch.Key
	prior    keepwatch.Object   // as returned by Options.Attributes; nil if there was no prior state
	revision keepwatch.Revision // of the change, or of the list that showed it
}

const replacedBytes = int64(unsafe.Sizeof(sized[replaced]{}))

// attributeLog holds the history behind the window as far as filters by content need it,
// oldest first: the prior states of changes, except those that every filter judges like
// the next state. To any filter, the state of an object at a revision is the prior state of
// its first change since then, in the log or in the window, or its current state if there
// is no such change.
//
// The log covers the current epoch. It is immutable once it is part of a view.
type attributeLog struct {
	queue[replaced]
	enabled bool // Options.Attributes is set
	// horizon is the oldest revision since which the log is complete.
	horizon keepwatch.Revision
}

// after returns the log of a transaction's next state. A new epoch begins with an empty log.
func (l attributeLog) after(t *txn) attributeLog {
	if t.base.revision == 0 || t.epoch != t.base.epoch {
		return attributeLog{enabled: l.enabled, horizon: t.revision}
	}
	return l
}

// add appends an entry that the window dropped. Beyond the bound it drops the oldest changes.
func (l attributeLog) add(e logEntry, epoch uint64, o Options) attributeLog {
	if !l.enabled || e.from.Epoch != epoch {
		return l
	}
	for _, c := range e.changes() {
		r := replaced{key: c.Object.Key(), revision: c.Revision}
		if e.isGap() {
			r.revision = e.to.Revision
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

// coversSince reports whether the log is complete since a revision.
func (l attributeLog) coversSince(r keepwatch.Revision) bool { return r >= l.horizon }

// since calls yield for the changes after a revision, oldest first.
func (l attributeLog) since(r keepwatch.Revision, yield func(replaced)) {
	for i := sort.Search(l.len(), func(i int) bool { return l.at(i).revision > r }); i < l.len(); i++ {
		yield(l.at(i))
	}
}
