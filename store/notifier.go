package store

import (
	"math/bits"
	"sync/atomic"

	"github.com/keepwatch/keepwatch"
)

// notifiers wake watchers. A watcher of everything waits for the notifier that every view
// broadcasts. A watcher of a namespace or a name waits for that of its scope, which
// broadcasts when something in the scope changes: a thousand watchers of one object each
// cost nothing while another object changes.
type notifiers struct {
	all    notifier
	scopes [scopeCount]scope
}

// scopeCount is the number of scopes. Namespaces and names share them by hash; a watcher
// may be woken for a change that its filter excludes, and then waits again.
const scopeCount = 256

// scope is shared by the namespaces and names of one hash.
type scope struct {
	notifier
	// lastChanged is the number of the newest view that changed something in the scope. It
	// is stored before that view is published: a reader that loads a view, and then finds
	// lastChanged below its number, may skip the views in between.
	lastChanged atomic.Uint64
}

// notifier closes a channel that its waiters share. The first waiter makes the channel.
type notifier struct{ waiting atomic.Pointer[chan struct{}] }

// wait returns the channel that the next broadcast closes. The caller must load the view
// once more before it blocks.
func (n *notifier) wait() <-chan struct{} {
	for {
		if c := n.waiting.Load(); c != nil {
			return *c
		}
		c := make(chan struct{})
		if n.waiting.CompareAndSwap(nil, &c) {
			return c
		}
	}
}

// broadcast wakes all waiters. The writer calls it after it published the view.
func (n *notifier) broadcast() {
	if n.waiting.Load() != nil {
		close(*n.waiting.Swap(nil))
	}
}

// scopeOf returns the scope of a filter, nil if it selects by content alone.
func (n *notifiers) scopeOf(f Filter) *scope {
	if f.Namespace == "" && f.Name == "" {
		return nil
	}
	return n.scopeAt(f.Namespace, f.Name)
}

func (n *notifiers) scopeAt(namespace, name string) *scope {
	return n.scopeUnder(absorb(1, namespace), absorb(2, name))
}

// scopeUnder returns the scope of the hashes of a namespace and a name.
func (n *notifiers) scopeUnder(namespace, name uint64) *scope {
	return &n.scopes[(namespace^bits.RotateLeft64(name, 32))%scopeCount]
}

// noNamespace and noName are the hashes of the empty namespace and name of a filter.
var noNamespace, noName = absorb(1, ""), absorb(2, "")

// inScopes calls do for the scopes that changes belong to, or for all of them.
func (n *notifiers) inScopes(changes []keepwatch.Change, all bool, do func(*scope)) {
	if all || 3*len(changes) > scopeCount {
		for i := range n.scopes {
			do(&n.scopes[i])
		}
		return
	}
	for _, c := range changes {
		key := c.Object.Key()
		namespace, name := absorb(1, key.Namespace), absorb(2, key.Name)
		do(n.scopeUnder(namespace, name))
		do(n.scopeUnder(namespace, noName))
		do(n.scopeUnder(noNamespace, name))
	}
}
