package object

import (
	"hash/maphash"
	"slices"
)

// interner makes one of values that are equal. It belongs to one goroutine.
type interner struct {
	strings *table // what repeats in objects is short,
	fields  *table // except the fields of a manager; nil where objects must share nothing mutable
}

// How many short texts an interner knows.
const (
	manyTexts = 1 << 14
	fewTexts  = 1 << 9
)

func newInterner(options Options) *interner {
	in := &interner{strings: newTable(manyTexts, 128)}
	if options.Compact {
		in.strings.most = fewTexts // no more than a few values share them
	}
	if !options.Transformed {
		in.fields = newTable(1<<8, 16<<10)
	}
	return in
}

// table knows the texts that it has seen lately, and what was made of them. What
// it forgets is never wrong, only kept twice.
type table struct {
	seed    maphash.Seed
	longest int    // of the texts it looks at, in bytes
	most    int    // texts that it holds
	slots   []slot // a power of two of them
	misses  int    // since slots were made
}

// slot holds the newest texts that fall into it, the newest one first.
type slot [4]entry

type entry struct {
	text string
	made any // of text; nil until it is asked for
}

func newTable(most, longest int) *table {
	return &table{seed: maphash.MakeSeed(), longest: longest, most: most, slots: make([]slot, 128)}
}

// string is what string(b) is.
func (t *table) string(b []byte) string {
	switch {
	case len(b) == 0:
		return ""
	case len(b) > t.longest:
		return string(b)
	}
	return t.entry(b).text
}

// value is what make makes of string(b).
func (t *table) value(b []byte, make func(text string) any) any {
	if len(b) > t.longest {
		return make(string(b))
	}
	e := t.entry(b)
	if e.made != nil {
		return e.made
	}
	made := make(e.text)
	t.entry(b).made = made // make may have moved what e points at
	return made
}

// entry is valid until the next call.
func (t *table) entry(b []byte) *entry {
	s := t.slot(maphash.Bytes(t.seed, b))
	for i := range s {
		if s[i].text == string(b) {
			return s.push(s[i], i)
		}
	}
	if t.misses++; t.misses > t.room() && 2*t.room() <= t.most {
		t.grow()
		s = t.slot(maphash.Bytes(t.seed, b))
	}
	return s.push(entry{text: string(b)}, len(s)-1)
}

// push puts e in front, in the place of what was at a position.
func (s *slot) push(e entry, at int) *entry {
	copy(s[1:at+1], s[:at])
	s[0] = e
	return &s[0]
}

// room is how many texts there are places for.
func (t *table) room() int { return len(t.slots) * len(slot{}) }

func (t *table) slot(hash uint64) *slot { return &t.slots[hash&uint64(len(t.slots)-1)] }

func (t *table) grow() {
	old := t.slots
	t.slots, t.misses = make([]slot, 2*len(old)), 0
	for _, of := range old {
		for _, e := range slices.Backward(of[:]) {
			t.slot(maphash.String(t.seed, e.text)).push(e, len(of)-1)
		}
	}
}
