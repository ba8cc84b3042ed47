package store

import (
	"sync"
	"sync/atomic"
)

// Memo is something that is derived from segments: their encoding, or that
// compressed. It is derived once, by whoever asks for it first, and kept as long
// as the segment is: until one of its objects is written and no snapshot holds the
// old state any more. Make few of them, and for good: a segment keeps a value for
// every memo that was ever asked for it.
//
// A value that has to be dropped earlier, to keep a budget for example, is one
// that can be emptied by itself: the memo keeps a pointer to it. The value is garbage
// as soon as the segment is.
type Memo[T any] struct {
	derive func(Segment) T
}

// NewMemo makes a memo. derive must depend on nothing but the segment's objects,
// and be safe to call from any goroutine.
func NewMemo[T any](derive func(Segment) T) *Memo[T] { return &Memo[T]{derive} }

// Of is the value for a segment. While one caller derives it, others that ask for
// the same wait for that; nobody else does. If derive panics, so does every call.
// Of a part of a segment nothing is kept.
func (m *Memo[T]) Of(s Segment) T {
	if !s.Whole() {
		return m.derive(s)
	}
	kept := s.node.memos.find(m)
	if kept == nil {
		kept = s.node.memos.add(m, func() any {
			derived := m.derive(s)
			return &derived
		})
	}
	return *kept.value().(*T)
}

// Known is the value for a segment if one is kept.
func (m *Memo[T]) Known(s Segment) (value T, ok bool) {
	if !s.Whole() {
		return value, false
	}
	kept := s.node.memos.find(m)
	if kept == nil {
		return value, false
	}
	return *kept.value().(*T), true
}

// memos is what a segment keeps: a list that only grows, and only at its front.
type memos struct{ first atomic.Pointer[memo] }

type memo struct {
	of    any // the *Memo
	value func() any
	next  *memo
}

// find is what is kept for a memo, nil for nothing.
func (m *memos) find(of any) *memo {
	for kept := m.first.Load(); kept != nil; kept = kept.next {
		if kept.of == of {
			return kept
		}
	}
	return nil
}

// add makes room for a memo, unless somebody has.
func (m *memos) add(of any, derive func() any) *memo {
	made := &memo{of: of, value: sync.OnceValue(derive)}
	for {
		made.next = m.first.Load()
		if kept := m.find(of); kept != nil {
			return kept
		}
		if m.first.CompareAndSwap(made.next, made) {
			return made
		}
	}
}
