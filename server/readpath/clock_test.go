package readpath

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func useOf(again bool) use {
	if again {
		return listRead
	}
	return singleRead
}

// queue is a clock as dumb as can be: the hand is at its front, and what it passes goes to the back.
type queue struct {
	most int64
	list []*queued
}

type queued struct {
	number int
	size   int64
	used   bool
}

func (q *queue) bytes() (n int64) {
	for _, one := range q.list {
		n += one.size
	}
	return n
}

func (q *queue) add(one queued) bool {
	passed := int64(0)
	for q.bytes()+one.size > q.most {
		if len(q.list) == 0 || passed >= one.size || one.size > q.most {
			return false
		}
		front := q.list[0]
		q.list, passed = q.list[1:], passed+front.size
		if front.used {
			front.used = false
			q.list = append(q.list, front)
		}
	}
	q.list = append(q.list, &one)
	return true
}

func (q *queue) find(number int) *queued {
	if i := slices.IndexFunc(q.list, func(one *queued) bool { return one.number == number }); i >= 0 {
		return q.list[i]
	}
	return nil
}

func (q *queue) drop(number int) {
	q.list = slices.DeleteFunc(q.list, func(one *queued) bool { return one.number == number })
}

// A clock holds what its twin does, and what it holds can be found, whatever is added, used and
// dropped.
func TestClockIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := NewBudget(0)
		budget.itemEncodings.limit = rapid.Int64Range(0, 40*encodingBytes).Draw(t, "most")
		twin := queue{most: budget.itemEncodings.limit}
		var all []*handle
		key := encodingKey{reader: 1}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				h, bytes, again := budget.newHandle(), rapid.IntRange(0, 1000).Draw(t, "bytes"), rapid.Bool().Draw(t, "recurring")
				h.cache(key, []byte{}, bytes, useOf(again))
				twin.add(queued{len(all), int64(bytes) + encodingBytes, again})
				all = append(all, h)
			},
			"use": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				if all[i].find(key) != nil {
					twin.find(i).used = true
				}
			},
			"drop": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				all[i].drop()
				twin.drop(i)
			},
			"": func(t *rapid.T) {
				if got, want := budget.Bytes(), twin.bytes(); got != want || got > twin.most {
					t.Fatalf("%d bytes, want %d, at most %d", got, want, twin.most)
				}
				for i, h := range all {
					if found, want := h.lookup(key) != nil, twin.find(i) != nil; found != want {
						t.Fatalf("%d of %d is cached: %v, want %v", i, len(all), found, want)
					}
				}
			},
		})
	})
}

// An object has many encodings, each found by its key until it is dropped.
func TestEncodingsOfOneObject(t *testing.T) {
	budget := NewBudget(1 << 20)
	h := budget.newHandle()
	var keys []encodingKey
	for _, f := range append(allEncodings, tableJSON) {
		keys = append(keys, encodingKey{reader: 1, encoding: f}, encodingKey{reader: 2, encoding: f}, encodingKey{1, f, false,
			"ADDED", 5}, encodingKey{1, f, true, "DELETED", 7})
	}
	for i, key := range keys {
		h.cache(key, []byte{byte(i)}, 1, singleRead)
		h.cache(key, []byte("another"), 7, singleRead) // which is not needed
	}
	for i, key := range keys {
		if got := h.bytes(key, blockInput); len(got) != 1 || got[0] != byte(i) {
			t.Errorf("%v: %q", key, got)
		}
	}
	if want := int64(len(keys)) * (1 + encodingBytes); budget.Bytes() != want {
		t.Errorf("%d bytes, want %d", budget.Bytes(), want)
	}
	for gone, key := range keys {
		budget.itemEncodings.remove(h.lookup(key))
		for i, other := range keys {
			if found := h.bytes(other, blockInput) != nil; found != (i > gone) {
				t.Errorf("%d are dropped, %d is found: %v", gone+1, i, found)
			}
		}
	}
	if budget.Bytes() != 0 {
		t.Errorf("%d bytes are left", budget.Bytes())
	}
}
