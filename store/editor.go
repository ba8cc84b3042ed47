package store

import (
	"slices"

	"github.com/keepwatch/keepwatch"
)

// editor makes a new tree out of an old one by path copying: a node is copied
// when it is first changed and then belongs to the editor, which changes it in
// place until tree publishes it. What is not touched stays shared.
type editor struct{ root *node }

// edit begins a new tree that is equal to t.
func (t tree) edit() *editor { return &editor{root: t.root} }

// publish returns the edited tree. The editor must not be used after that.
func (ed *editor) publish() tree {
	t := tree{ed.root}
	ed.root = nil
	return t
}

// get finds the entry of key as edited so far.
func (ed *editor) get(key keepwatch.Key) (entry, bool) {
	e, _, ok := tree{ed.root}.get(key)
	return e, ok
}

// own returns n itself if it is the editor's, else a copy that is.
func (ed *editor) own(n *node) *node {
	if n.owner == ed {
		return n
	}
	c := *n
	c.owner = ed
	c.entries, c.children = slices.Clone(n.entries), slices.Clone(n.children)
	return &c
}

// put adds or replaces an entry.
func (ed *editor) put(e entry) {
	if ed.root == nil {
		ed.root = &node{owner: ed}
	}
	root, split := ed.putUnder(ed.root, e)
	if split != nil {
		root = ed.inner([]*node{root, split})
	}
	ed.root = root
}

// putUnder returns the node that takes n's place, and a second one to its right
// if it had to be split.
func (ed *editor) putUnder(n *node, e entry) (*node, *node) {
	n = ed.own(n)
	n.newest = max(n.newest, e.object.Revision())
	if n.leaf() {
		i, found := n.find(e.key)
		if found {
			n.entries[i] = e
			return n, nil
		}
		n.entries = slices.Insert(n.entries, i, e)
	} else {
		i := n.child(e.key)
		c, split := ed.putUnder(n.children[i], e)
		n.children[i] = c
		if split != nil {
			n.children = slices.Insert(n.children, i+1, split)
		}
	}
	return ed.fit(n, e.key)
}

// fit splits n if it is too large. Where keys arrive in order, as they do in a
// list, only the last one goes to the right, and the left node stays full.
func (ed *editor) fit(n *node, key keepwatch.Key) (*node, *node) {
	size := max(len(n.entries), len(n.children))
	if size <= fanout {
		n.measure()
		return n, nil
	}
	at := size / 2
	if key == n.high() {
		at = size - 1
	}
	right := &node{owner: ed, newest: n.newest}
	if n.leaf() {
		right.entries = slices.Clone(n.entries[at:])
		clear(n.entries[at:])
		n.entries = n.entries[:at]
	} else {
		right.children = slices.Clone(n.children[at:])
		clear(n.children[at:])
		n.children = n.children[:at]
	}
	n.measure()
	right.measure()
	return n, right
}

// inner makes a node over children.
func (ed *editor) inner(children []*node) *node {
	n := &node{owner: ed, children: children}
	for _, c := range children {
		n.newest = max(n.newest, c.newest)
	}
	n.measure()
	return n
}

// measure sets what follows from the entries or children.
func (n *node) measure() {
	if n.leaf() {
		n.count = len(n.entries)
		if n.count > 0 {
			n.low = n.entries[0].key
		}
		return
	}
	n.count, n.low = 0, n.children[0].low
	for _, c := range n.children {
		n.count += c.count
	}
}

// remove takes key out, if it is there.
func (ed *editor) remove(key keepwatch.Key) {
	if _, ok := ed.get(key); !ok {
		return
	}
	root := ed.removeUnder(ed.root, key)
	for len(root.children) == 1 {
		root = root.children[0]
	}
	if root.count == 0 {
		root = nil
	}
	ed.root = root
}

// removeUnder returns the node that takes n's place. Invariant: key is below n.
func (ed *editor) removeUnder(n *node, key keepwatch.Key) *node {
	n = ed.own(n)
	if n.leaf() {
		i, _ := n.find(key)
		n.entries = slices.Delete(n.entries, i, i+1)
	} else {
		i := n.child(key)
		n.children[i] = ed.removeUnder(n.children[i], key)
		ed.tidy(n, i)
	}
	n.measure()
	return n
}

// tidy joins the i-th child with a neighbour when it has become small, so that
// every node but the root stays at least a quarter full.
func (ed *editor) tidy(n *node, i int) {
	if max(len(n.children[i].entries), len(n.children[i].children)) >= fanout/4 || len(n.children) == 1 {
		return
	}
	left := max(0, i-1)
	a, b := ed.own(n.children[left]), n.children[left+1]
	a.entries = append(a.entries, b.entries...)
	if !b.leaf() {
		a.children = append(a.children, b.children...)
	}
	a.newest = max(a.newest, b.newest)
	n.children = slices.Delete(n.children, left+1, left+2)
	a, split := ed.fit(a, keepwatch.Key{})
	n.children[left] = a
	if split != nil {
		n.children = slices.Insert(n.children, left+1, split)
	}
}
