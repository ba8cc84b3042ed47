package store

import (
	"sync"
	"sync/atomic"
)

// Memo caches a value that is derived from segments, such as their encoding. The first
// caller derives it, and it lives as long as the segment: until one of its objects is
// written and no snapshot has the old state any more. Use few memos, and never drop one: a
// segment has a value of every memo that was ever asked for it.
//
// A value that must be dropped earlier, to keep a budget for example, must be one that can
// be emptied: the memo keeps a pointer to it.
type Memo[T any] struct {
	derive func(Segment) T
}

// NewMemo returns a memo. derive must depend only on the segment's objects, and be safe for
// concurrent use.
func NewMemo[T any](derive func(Segment) T) *Memo[T] { return &Memo[T]{derive} }

// Of returns the value of a segment. While one caller derives it, callers for the same
// segment wait. If derive panics, so does every call. The value of a part of a segment is
// not cached.
func (m *Memo[T]) Of(s Segment) T {
	if !s.Whole() {
		return m.derive(s)
	}
	known := s.node.memos.find(m)
	if known == nil {
		known = s.node.memos.add(m, func() any {
			derived := m.derive(s)
			return &derived
		})
	}
	return *known.value().(*T)
}

// Known returns the value of a segment if it is cached.
func (m *Memo[T]) Known(s Segment) (value T, ok bool) {
	if !s.Whole() {
		return value, false
	}
	known := s.node.memos.find(m)
	if known == nil {
		return value, false
	}
	return *known.value().(*T), true
}

// memos are the values of a segment: a list that only grows, at its front.
type memos struct{ first atomic.Pointer[memo] }

type memo struct {
	of    any // the *Memo
	value func() any
	next  *memo
}

// find returns the value of a memo, nil if there is none.
func (m *memos) find(of any) *memo {
	for known := m.first.Load(); known != nil; known = known.next {
		if known.of == of {
			return known
		}
	}
	return nil
}

// add adds a value of a memo unless there is one, and returns the one in the list.
func (m *memos) add(of any, derive func() any) *memo {
	made := &memo{of: of, value: sync.OnceValue(derive)}
	for {
		made.next = m.first.Load()
		if known := m.find(of); known != nil {
			return known
		}
		if m.first.CompareAndSwap(made.next, made) {
			return made
		}
	}
}
