package store

import "github.com/keepwatch/keepwatch"

// diff calls yield for every key whose object differs between two trees, in key order:
// before is nil if a lacks the key, after if b lacks it. It skips nodes that the trees
// share: it costs O(changes · height), whatever the size of the trees.
func diff(a, b tree, yield func(before, after *entry)) {
	x, y := walkFrom(a), walkFrom(b)
	for len(x) > 0 && len(y) > 0 {
		step(&x, &y, yield)
	}
	x.drain(func(e *entry) { yield(e, nil) })
	y.drain(func(e *entry) { yield(nil, e) })
}

// step compares the next elements of two walks and removes them, or opens them if they
// overlap.
func step(x, y *walk, yield func(before, after *entry)) {
	a, b := x.top(), y.top()
	switch {
	case a == b:
		x.pop()
		y.pop()
	case a.high().Compare(b.low()) < 0:
		x.skip(func(e *entry) { yield(e, nil) })
	case b.high().Compare(a.low()) < 0:
		y.skip(func(e *entry) { yield(nil, e) })
	case a.isEntry() && b.isEntry():
		if a.entry() != b.entry() && a.entry().object != b.entry().object {
			yield(a.entry(), b.entry())
		}
		x.pop()
		y.pop()
	default: // they overlap: open the higher one
		if a.height >= b.height {
			x.open()
		}
		if b.height >= a.height {
			y.open()
		}
	}
}

// pathElement is a node, or one entry of a segment, that a walk has not visited.
type pathElement struct {
	node   *node
	height int // of the node above its segments; -1 for an entry
	index  int // of the entry
}

func (s pathElement) isEntry() bool { return s.height < 0 }
func (s pathElement) entry() *entry { return s.node.entries[s.index] }

func (s pathElement) low() keepwatch.Key { return s.node.keys.list[s.index] }

func (s pathElement) high() keepwatch.Key {
	if s.isEntry() {
		return s.low()
	}
	return s.node.high()
}

// walk is a path through a tree in key order; its last element is the next one.
type walk []pathElement

func walkFrom(t tree) walk {
	if t.root == nil {
		return nil
	}
	height := 0
	for n := t.root; !n.leaf(); n = n.children[0] {
		height++
	}
	return walk{{node: t.root, height: height}}
}

func (w walk) top() pathElement { return w[len(w)-1] }
func (w *walk) pop()            { *w = (*w)[:len(*w)-1] }

// open replaces the next node by its children or entries.
func (w *walk) open() {
	s := w.top()
	w.pop()
	for i := len(s.node.keys.list) - 1; i >= 0; i-- {
		if s.node.leaf() {
			*w = append(*w, pathElement{node: s.node, height: -1, index: i})
		} else {
			*w = append(*w, pathElement{node: s.node.children[i], height: s.height - 1})
		}
	}
}

// skip visits all entries of the next element.
func (w *walk) skip(yield func(*entry)) {
	s := w.top()
	w.pop()
	if s.isEntry() {
		yield(s.entry())
		return
	}
	s.node.all(func(s Segment) bool {
		for _, e := range s.entries() {
			yield(e)
		}
		return true
	})
}

// rest visits all remaining entries.
func (w *walk) drain(yield func(*entry)) {
	for len(*w) > 0 {
		w.skip(yield)
	}
}
