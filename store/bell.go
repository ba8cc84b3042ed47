package store

import (
	"math/bits"
	"sync/atomic"

	"github.com/keepwatch/keepwatch"
)

// bells wake watchers. Who watches everything waits for one that every view rings;
// who watches a namespace or a name waits for that of its scope, which is rung
// when something changes there: a thousand watchers of one object each cost nothing
// while another one changes.
type bells struct {
	every  bell
	scoped [scopes]scope
}

// scopes is how many scopes there are. Namespaces and names share them by hash: a
// watcher that is woken for another one's sake looks in vain, that is all.
const scopes = 256

// scope is what some namespaces and names have in common.
type scope struct {
	bell
	// touched is the number of the newest view that changed something in the scope. It
	// is stored before that view is published: so who loads a view, and then finds
	// touched below its number, knows that the views in between are nothing to it.
	touched atomic.Uint64
}

// bell is a channel that is closed once, made when the first one waits for it.
type bell struct{ waiting atomic.Pointer[chan struct{}] }

// hear is the channel that the next ring closes. Who calls it must look at the view
// once more before waiting.
func (b *bell) hear() <-chan struct{} {
	for {
		if c := b.waiting.Load(); c != nil {
			return *c
		}
		c := make(chan struct{})
		if b.waiting.CompareAndSwap(nil, &c) {
			return c
		}
	}
}

// ring is called by one goroutine at a time, after the view was published.
func (b *bell) ring() {
	if b.waiting.Load() != nil {
		close(*b.waiting.Swap(nil))
	}
}

// of is a filter's scope, nil if it selects by content alone.
func (b *bells) of(f Filter) *scope {
	if f.Namespace == "" && f.Name == "" {
		return nil
	}
	return b.at(f.Namespace, f.Name)
}

func (b *bells) at(namespace, name string) *scope {
	return b.under(absorb(1, namespace), absorb(2, name))
}

// under joins the hashes of a namespace and a name.
func (b *bells) under(namespace, name uint64) *scope {
	return &b.scoped[(namespace^bits.RotateLeft64(name, 32))%scopes]
}

// noNamespace and noName are the hashes of what a filter does not name.
var noNamespace, noName = absorb(1, ""), absorb(2, "")

// around calls do for the scopes that changes belong to, or for all of them.
func (b *bells) around(changes []keepwatch.Change, all bool, do func(*scope)) {
	if all || 3*len(changes) > scopes {
		for i := range b.scoped {
			do(&b.scoped[i])
		}
		return
	}
	for _, c := range changes {
		key := c.Object.Key()
		namespace, name := absorb(1, key.Namespace), absorb(2, key.Name)
		do(b.under(namespace, name))
		do(b.under(namespace, noName))
		do(b.under(noNamespace, name))
	}
}
