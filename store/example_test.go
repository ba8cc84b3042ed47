package store_test

import (
	"context"
	"fmt"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// A Pod has the fields that this program needs.
type Pod struct {
	Namespace, Name, ID string
	Written             keepwatch.Revision
	Node                string
}

func (p *Pod) Key() keepwatch.Key           { return keepwatch.Key{Namespace: p.Namespace, Name: p.Name} }
func (p *Pod) UID() keepwatch.UID           { return keepwatch.UID(p.ID) }
func (p *Pod) Revision() keepwatch.Revision { return p.Written }

// Usually a reflector writes: first a list, then the changes. Any number of consumers
// read, each at its own pace.
func Example() {
	ctx := context.Background()
	pods := store.New(store.Options{})

	list, err := pods.Replace(ctx, keepwatch.Relist{})
	if err != nil {
		panic(err)
	}
	err = list.Put(ctx, []keepwatch.Object{
		&Pod{"default", "web", "u1", 7, "node-1"},
		&Pod{"default", "db", "u2", 5, "node-2"},
		&Pod{"kube-system", "dns", "u3", 3, "node-1"},
	})
	if err != nil {
		panic(err)
	}
	if err := list.Commit(ctx, 10); err != nil {
		panic(err)
	}

	for o := range pods.Snapshot().Namespace("default") {
		fmt.Println("at 10:", o.Key(), "on", o.(*Pod).Node)
	}

	// A watcher of node-1 receives Added for a pod that moves there, and Deleted for one that
	// leaves.
	watcher := pods.Watch(pods.Snapshot().Cursor(), store.Filter{
		Match: func(o keepwatch.Object) bool { return o.(*Pod).Node == "node-1" },
	})
	_, err = pods.Apply(ctx, keepwatch.Batch{From: 10, To: 12, Changes: []keepwatch.Change{
		{Type: keepwatch.Modified, Revision: 11, Object: &Pod{"default", "db", "u2", 11, "node-1"}},
		{Type: keepwatch.Deleted, Revision: 12, Object: &Pod{"default", "web", "u1", 12, "node-1"}},
	}})
	if err != nil {
		panic(err)
	}
	delivery, err := watcher.Next(ctx)
	if err != nil {
		panic(err)
	}
	for _, c := range delivery.(keepwatch.Batch).Changes {
		fmt.Println(c.Type, c.Object.Key())
	}

	// An earlier state can be read within the window.
	then, err := pods.At(11)
	if err != nil {
		panic(err)
	}
	for _, c := range then.Diff(pods.Snapshot()) {
		fmt.Println("since 11:", c.Type, c.Object.Key())
	}

	// Output:
	// at 10: default/db on node-2
	// at 10: default/web on node-1
	// ADDED default/db
	// DELETED default/web
	// since 11: DELETED default/web
}
