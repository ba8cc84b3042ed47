package store

// diff calls yield for every key whose entry differs between two trees, in key
// order: before is the zero entry where a has none, after where b has none. Nodes
// that the trees share are skipped, so that it costs what has changed since, times
// the height, and not what there is.
func diff(a, b tree, yield func(before, after entry)) {
	x, y := walkFrom(a), walkFrom(b)
	for len(x) > 0 || len(y) > 0 {
		switch {
		case len(y) == 0:
			x.all(func(e entry) { yield(e, entry{}) })
		case len(x) == 0:
			y.all(func(e entry) { yield(entry{}, e) })
		default:
			step(&x, &y, yield)
		}
	}
}

// step compares what two walks stand before.
func step(x, y *walk, yield func(before, after entry)) {
	a, b := x.top(), y.top()
	switch {
	case a.node != nil && a.node == b.node:
		x.pop()
		y.pop()
	case a.node == nil && b.node == nil:
		c := a.entry.key.Compare(b.entry.key)
		if c < 0 {
			yield(a.entry, entry{})
		} else if c > 0 {
			yield(entry{}, b.entry)
		} else if a.entry.object != b.entry.object {
			yield(a.entry, b.entry)
		}
		if c <= 0 {
			x.pop()
		}
		if c >= 0 {
			y.pop()
		}
	// Open what can't be compared as it is: of two overlapping nodes the higher
	// one, of two that don't overlap the one that comes first.
	case a.node == nil:
		y.open()
	case b.node == nil:
		x.open()
	case a.node.high().Compare(b.node.low) < 0:
		x.open()
	case b.node.high().Compare(a.node.low) < 0:
		y.open()
	default:
		if a.height >= b.height {
			x.open()
		}
		if b.height >= a.height {
			y.open()
		}
	}
}

// stone is what a walk has yet to visit: a node, or one entry of an opened
// segment.
type stone struct {
	node   *node
	height int
	entry  entry
}

// walk is a path through a tree in key order; the last stone is the next.
type walk []stone

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

func (w walk) top() stone { return w[len(w)-1] }
func (w *walk) pop()      { *w = (*w)[:len(*w)-1] }

// open replaces the next node by what it holds.
func (w *walk) open() {
	s := w.top()
	w.pop()
	for i := len(s.node.children) - 1; i >= 0; i-- {
		*w = append(*w, stone{node: s.node.children[i], height: s.height - 1})
	}
	for i := len(s.node.entries) - 1; i >= 0; i-- {
		*w = append(*w, stone{entry: s.node.entries[i]})
	}
}

// all visits the rest of the walk.
func (w *walk) all(yield func(entry)) {
	for len(*w) > 0 {
		if s := w.top(); s.node != nil {
			w.open()
		} else {
			w.pop()
			yield(s.entry)
		}
	}
}
