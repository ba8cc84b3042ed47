package reflector_test

import (
	"context"
	"fmt"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/store"
)

// cluster is a source with two objects, one of which changes once.
type cluster struct{}

func (cluster) List(context.Context, keepwatch.ListRequest) (keepwatch.Page, error) {
	return keepwatch.Page{Revision: 10, Objects: []keepwatch.Object{parse("a@4"), parse("b@7")}}, nil
}

func (cluster) Unchanged(context.Context, keepwatch.Revision, keepwatch.Revision) error { return nil }

func (cluster) StreamList(context.Context, keepwatch.Revision,
	func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	return 0, nil, keepwatch.Failed(keepwatch.StreamingListUnsupported, "this one only lists")
}

func (cluster) Newest(context.Context) (keepwatch.Revision, error) { return 12, nil }

func (cluster) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	return &once{ctx: ctx, from: from}, nil
}

type once struct {
	ctx  context.Context
	from keepwatch.Revision
}

func (w *once) Next() (keepwatch.Batch, error) {
	if w.from >= 12 {
		<-w.ctx.Done()
		return keepwatch.Batch{}, keepwatch.Failed(keepwatch.Ended, "cancelled")
	}
	b := keepwatch.Batch{From: w.from, To: 12, Changes: []keepwatch.Change{
		{Type: keepwatch.Modified, Revision: 12, Object: parse("a@12")},
	}}
	w.from = b.To
	return b, nil
}

func (w *once) Close() {}

// A reflector keeps a store equal to a source. A watcher of the store receives the state,
// every change after it, and the store's revision.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pods := store.New(store.Options{})
	r := reflector.New(cluster{}, pods, reflector.Options{})
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()

	w := pods.Watch(store.Cursor{}, store.Filter{})
	for w.Cursor().Revision < 12 {
		if _, err := w.Next(ctx); err != nil {
			fmt.Println(err)
			return
		}
	}
	for o := range pods.Snapshot().All() {
		fmt.Println(o.Key(), "is at", o.Revision())
	}
	cancel()
	fmt.Println(<-done)
	// Output:
	// a is at 12
	// b is at 7
	// context canceled
}
