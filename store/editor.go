package store

import (
	"slices"
	"sync/atomic"

	"github.com/keepwatch/keepwatch"
)

// editor makes a new tree from an old one by path copying: it copies a node before it
// first changes it, and then changes its copy until publish ends that. The trees share all
// other nodes.
type editor struct {
	root   *node
	number uint64
}

// editors numbers the editors of all stores.
var editors atomic.Uint64

// edit begins a new tree that is equal to t.
func (t tree) edit() editor { return editor{root: t.root, number: editors.Add(1)} }

// publish returns the edited tree. The editor must not be used after that.
func (ed *editor) publish() tree {
	t := tree{ed.root}
	*ed = editor{}
	return t
}

// seek returns the position of key in the edited tree; it is valid until the next edit.
func (ed *editor) seek(key keepwatch.Key) position { return tree{ed.root}.seek(key) }

// own returns n itself if it is the editor's, else a copy that is.
func (ed *editor) own(n *node) *node {
	if n.owner == ed.number {
		return n
	}
	var c *node
	if n.leaf() {
		c = ed.segment(n.keys, n.entries)
	} else {
		c = ed.inner(n.keys, n.children)
	}
	c.count, c.newest = n.count, n.newest
	return c
}

// segment makes a segment out of copies of entries. Node and entries are one
// allocation, with room for one that is too many until fit splits it.
func (ed *editor) segment(keys *keys, entries []*entry) *node {
	n := new(struct {
		node
		room [fill + 1]*entry
	})
	n.keys, n.entries, n.owner = keys, append(n.room[:0], entries...), ed.number
	return &n.node
}

// inner makes an inner node out of copies of children, as segment does.
func (ed *editor) inner(keys *keys, children []*node) *node {
	n := new(struct {
		node
		room [fanout + 1]*node
	})
	n.keys, n.children, n.owner = keys, append(n.room[:0], children...), ed.number
	return &n.node
}

// put adds an entry at the position of its key, or replaces the entry there.
func (ed *editor) put(p position, key keepwatch.Key, e *entry) {
	if ed.root == nil {
		ed.root = ed.segmentOf([]keepwatch.Key{key}, []*entry{e})
		return
	}
	put := put{editor: *ed, position: p, key: key, entry: e}
	root, right := put.under(ed.root, 0, true)
	if right != nil {
		root = ed.innerOf([]keepwatch.Key{root.low(), right.low()}, []*node{root, right})
	}
	ed.root = root
}

// put is one put on its way through the tree.
type put struct {
	editor
	position position
	key      keepwatch.Key
	entry    *entry
}

// under returns the node that replaces n, and a second one to its right if it was split.
// edge is true if n is on the right edge of the tree.
func (p *put) under(n *node, level int, edge bool) (left, right *node) {
	n = p.own(n)
	n.newest = max(n.newest, p.entry.stored)
	i := int(p.position.steps[level])
	if n.leaf() {
		if p.position.entry != nil {
			n.entries[i] = p.entry
			return n, nil
		}
		n.count++
		n.keys, n.entries = n.keys.insert(i, p.key), slices.Insert(n.entries, i, p.entry)
		return p.fit(n, edge && i == len(n.entries)-1)
	}
	last := i == len(n.children)-1
	n.count -= n.children[i].count
	child, split := p.under(n.children[i], level+1, edge && last)
	n.count += child.count
	n.set(i, child)
	if split == nil {
		return n, nil
	}
	n.count += split.count
	n.keys, n.children = n.keys.insert(i+1, split.low()), slices.Insert(n.children, i+1, split)
	return p.fit(n, edge && last)
}

// fit splits n if it is too large. Where keys arrive in order, as they do in a
// list, they are appended at the tree's right edge: there only the last one goes
// to the right, and the left node stays full.
func (ed *editor) fit(n *node, appended bool) (left, right *node) {
	keys := n.keys.list
	if len(keys) <= n.room() {
		return n, nil
	}
	at := len(keys) / 2
	if appended {
		at = len(keys) - 1
	}
	return ed.split(at, keys, n.entries, n.children)
}

// split divides the content of a full node into two nodes.
func (ed *editor) split(at int, keys []keepwatch.Key, entries []*entry, children []*node) (left, right *node) {
	if len(entries) > 0 {
		return ed.segmentOf(keys[:at], entries[:at]), ed.segmentOf(keys[at:], entries[at:])
	}
	return ed.innerOf(keys[:at], children[:at]), ed.innerOf(keys[at:], children[at:])
}

// segmentOf makes a segment and counts it up.
func (ed *editor) segmentOf(keys []keepwatch.Key, entries []*entry) *node {
	n := ed.segment(newKeys(keys), entries)
	n.count = len(entries)
	for _, e := range entries {
		n.newest = max(n.newest, e.stored)
	}
	return n
}

// innerOf makes an inner node and counts it up.
func (ed *editor) innerOf(keys []keepwatch.Key, children []*node) *node {
	n := ed.inner(newKeys(keys), children)
	for _, c := range children {
		n.count += c.count
		n.newest = max(n.newest, c.newest)
	}
	return n
}

// set replaces the i-th child.
func (n *node) set(i int, child *node) {
	n.children[i] = child
	if low := child.low(); n.keys.list[i] != low {
		n.keys = n.keys.replace(i, low)
	}
}

// remove removes the entry at a position.
func (ed *editor) remove(p position) {
	ed.root = ed.removeUnder(ed.root, p, 0)
	for ed.root != nil && len(ed.root.children) == 1 {
		ed.root = ed.root.children[0]
	}
}

// removeUnder returns the node that replaces n, nil if it is empty.
func (ed *editor) removeUnder(n *node, p position, level int) *node {
	if n.count == 1 {
		return nil
	}
	n = ed.own(n)
	n.count--
	i := int(p.steps[level])
	if n.leaf() {
		n.keys, n.entries = n.keys.remove(i), slices.Delete(n.entries, i, i+1)
		return n
	}
	if child := ed.removeUnder(n.children[i], p, level+1); child != nil {
		n.set(i, child)
		ed.join(n, i)
	} else {
		n.keys, n.children = n.keys.remove(i), slices.Delete(n.children, i, i+1)
	}
	return n
}

// join unites the i-th child with a neighbour when it has become small.
func (ed *editor) join(n *node, i int) {
	if c := n.children[i]; len(c.keys.list) >= c.room()/4 || len(n.children) == 1 {
		return
	}
	i = max(0, i-1)
	a, b := n.children[i], n.children[i+1]
	keys := slices.Concat(a.keys.list, b.keys.list)
	entries, children := slices.Concat(a.entries, b.entries), slices.Concat(a.children, b.children)
	if len(keys) > a.room() {
		left, right := ed.split(len(keys)/2, keys, entries, children)
		n.set(i, left)
		n.set(i+1, right)
		return
	}
	if len(entries) > 0 {
		n.set(i, ed.segmentOf(keys, entries))
	} else {
		n.set(i, ed.innerOf(keys, children))
	}
	n.keys, n.children = n.keys.remove(i+1), slices.Delete(n.children, i+1, i+2)
}
