package informer

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/store"
)

// intake is the target that a reflector feeds: it lets each new state of an object
// through the transform, once, and hands it on to the store. What is not new is
// not touched. A state that the transform or the expected type rejects goes on
// without its value, so that the object's earlier states do not stay.
type intake struct {
	store     *store.Store
	expect    expectation
	transform func(any) (any, error) // nil for none
	// dropManaged takes managedFields away first, of what was not read without them.
	dropManaged bool
	took        func(any)             // is called with each value that was taken, if not nil
	listed      func(*store.Snapshot) // is called once, with the first list
	rewound     bool                  // what is held is of another history than the next list; the reflector's

	// publishing is held while the store takes something and until lookup and current
	// show it too, both at once.
	publishing sync.RWMutex
	lookup     lookup
	current    atomic.Pointer[store.Snapshot] // nil before the first list
	distrusted atomic.Bool                    // what is held is to be listed again
}

// publish lets the store take something, and shows it.
func (t *intake) publish(take func() error) error {
	t.publishing.Lock()
	defer t.publishing.Unlock()
	before := t.store.Snapshot()
	if err := take(); err != nil {
		return err
	}
	now := t.store.Snapshot()
	show := func() { t.current.Store(now) }
	if before.Revision() == 0 {
		t.lookup.fill(now, show)
	} else {
		changes, _, _ := t.store.Since(before, math.MaxInt)
		t.lookup.follow(changes, show)
	}
	return nil
}

// refresh shows what has changed in the store besides its objects.
func (t *intake) refresh() {
	t.publishing.Lock()
	defer t.publishing.Unlock()
	if t.current.Load() != nil {
		t.current.Store(t.store.Snapshot())
	}
}

// settle waits until what the store has published is shown.
func (t *intake) settle() {
	t.publishing.RLock()
	defer t.publishing.RUnlock()
}

func (t *intake) Held() keepwatch.Revision { return t.store.Held() }

// Void says that no history follows what is held.
func (t *intake) Void(ctx context.Context, reason keepwatch.GapReason) error {
	t.rewound = reason == keepwatch.GapRewind
	return t.store.Void(ctx, reason)
}

// Apply takes the next piece of history.
func (t *intake) Apply(ctx context.Context, batch keepwatch.Batch) (dropped int, err error) {
	if t.distrusted.Swap(false) {
		return 0, keepwatch.Failed(keepwatch.ProtocolViolation, "a repair was asked for")
	}
	held := t.store.Snapshot()
	admitted := make([]keepwatch.Change, len(batch.Changes))
	for i, c := range batch.Changes {
		if before, ok := held.Get(c.Object.Key()); ok && c.Revision <= before.Revision() {
			if c.Type == keepwatch.Deleted && c.Object.UID() == before.UID() {
				return 0, keepwatch.Failed(keepwatch.ProtocolViolation,
					"%s was deleted at %d, but is there at %d", before.Key(), c.Revision, before.Revision())
			}
			admitted[i] = c
			continue
		}
		c.Object = t.admit(c.Object.(*item.Item))
		admitted[i] = c
	}
	batch.Changes = admitted
	err = t.publish(func() error {
		dropped, err = t.store.Apply(ctx, batch)
		return err
	})
	return dropped, err
}

// Replace begins to replace the state by a list.
func (t *intake) Replace(ctx context.Context, relist keepwatch.Relist) (keepwatch.Replacement, error) {
	replacement, err := t.store.Replace(ctx, relist)
	if err != nil {
		return nil, err
	}
	return &intakeList{Replacement: replacement, intake: t, held: t.store.Snapshot(), rewound: t.rewound || relist.Reason == keepwatch.GapRewind}, nil
}

// intakeList is a list on its way in.
type intakeList struct {
	keepwatch.Replacement
	intake  *intake
	held    *store.Snapshot
	rewound bool // equal revisions no longer mean equal content
}

func (l *intakeList) Put(ctx context.Context, objects []keepwatch.Object) error {
	for i, o := range objects {
		held, ok := l.held.Get(o.Key())
		if ok && (held == o || !l.rewound && held.UID() == o.UID() && held.Revision() == o.Revision()) {
			objects[i] = held
		} else {
			objects[i] = l.intake.admit(o.(*item.Item))
		}
	}
	return l.Replacement.Put(ctx, objects)
}

func (l *intakeList) Commit(ctx context.Context, to keepwatch.Revision) error {
	first := l.held.Revision() == 0
	if err := l.intake.publish(func() error { return l.Replacement.Commit(ctx, to) }); err != nil {
		return err
	}
	l.intake.rewound = false
	if first {
		l.intake.listed(l.intake.store.Snapshot())
	}
	return nil
}

// admit gives an object its value as handlers see it, or takes it away.
func (t *intake) admit(o *item.Item) *item.Item {
	if o.Err() != nil {
		return o // it could not be decoded
	}
	if !o.Packed() { // else who packed it has seen to all this
		if err := t.expect.check(o.Value()); err != nil {
			return o.Rejected(err)
		}
		if about, err := meta.Accessor(o.Value()); t.dropManaged && err == nil {
			about.SetManagedFields(nil)
		}
	}
	if t.transform != nil {
		o = t.transformed(o)
	}
	if t.took != nil && !o.Packed() && o.Err() == nil {
		t.took(o.Value())
	}
	return o
}

// expectation is the type that objects must have; nil is any.
type expectation struct {
	goType reflect.Type
	kind   schema.GroupVersionKind // of unstructured objects, empty for any
}

// expecting is what objects like the example are.
func expecting(example runtime.Object) expectation {
	if example == nil {
		return expectation{}
	}
	e := expectation{goType: reflect.TypeOf(example)}
	if u, ok := example.(runtime.Unstructured); ok {
		e.kind = u.GetObjectKind().GroupVersionKind()
	}
	return e
}

func (e expectation) check(value any) error {
	if e.goType == nil {
		return nil
	}
	if got := reflect.TypeOf(value); got != e.goType {
		return fmt.Errorf("a %v is not a %v", got, e.goType)
	}
	if e.kind.Empty() {
		return nil
	}
	if got := value.(runtime.Object).GetObjectKind().GroupVersionKind(); got != e.kind {
		return fmt.Errorf("a %v is not a %v", got, e.kind)
	}
	return nil
}
