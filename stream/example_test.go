package stream_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/stream"
)

// note is an object that a stream can send.
type note struct {
	name     string
	revision keepwatch.Revision
}

func (n note) Key() keepwatch.Key           { return keepwatch.Key{Namespace: "default", Name: n.name} }
func (n note) UID() keepwatch.UID           { return keepwatch.UID("uid-" + n.name) }
func (n note) Revision() keepwatch.Revision { return n.revision }

func (n note) JSON() []byte {
	return fmt.Appendf(nil, `{"metadata":{"name":%q},"text":"as of %d"}`, n.name, n.revision)
}

func (n note) Metadata() []byte { return fmt.Appendf(nil, `{"metadata":{"name":%q}}`, n.name) }

// notebook is a source: two notes at revision 7, and a history up to 9.
type notebook struct{}

func (notebook) List(context.Context, keepwatch.ListRequest) (keepwatch.Page, error) {
	return keepwatch.Page{Revision: 7, Objects: []keepwatch.Object{note{"a", 4}, note{"b", 7}}}, nil
}

func (notebook) Unchanged(context.Context, keepwatch.Revision, keepwatch.Revision) error { return nil }

func (notebook) StreamList(context.Context, keepwatch.Revision,
	func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	return 0, nil, keepwatch.Failed(keepwatch.StreamingListUnsupported, "a notebook only lists")
}

func (notebook) Newest(context.Context) (keepwatch.Revision, error) { return 9, nil }

func (notebook) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	return &pages{ctx: ctx, batches: []keepwatch.Batch{{From: from, To: 9, Changes: []keepwatch.Change{
		{Type: keepwatch.Modified, Revision: 8, Object: note{"a", 8}},
		{Type: keepwatch.Deleted, Revision: 9, Object: note{"b", 9}},
	}}}}, nil
}

// pages is a watch that has one batch and then waits.
type pages struct {
	ctx     context.Context
	batches []keepwatch.Batch
}

func (p *pages) Next() (keepwatch.Batch, error) {
	if len(p.batches) == 0 {
		<-p.ctx.Done()
		return keepwatch.Batch{}, keepwatch.Failed(keepwatch.Ended, "closed")
	}
	b := p.batches[0]
	p.batches = p.batches[1:]
	return b, nil
}

func (p *pages) Close() {}

// until ends a run when an event at a revision was written.
type until struct {
	stream.Sink
	revision keepwatch.Revision
	end      func()
}

func (u until) Write(m stream.Message) error {
	if e, ok := m.(stream.Event); ok && e.Revision >= u.revision {
		defer u.end()
	}
	return u.Sink.Write(m)
}

// This stream writes to stdout, and has its state in memory. stream.Open returns a state on
// disk.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	sink := until{stream.NDJSON(os.Stdout, "notes"), 9, cancel}
	target, err := stream.New(sink, stream.InMemory(), stream.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = reflector.New(notebook{}, target, reflector.Options{}).Run(ctx)
	fmt.Println(errors.Is(err, context.Canceled), target.Revision())
	// Output:
	// {"type":"ADDED","revision":"4","id":"uid-a/4","resource":"notes","object":{"metadata":{"name":"a"},"text":"as of 4"}}
	// {"type":"ADDED","revision":"7","id":"uid-b/7","resource":"notes","object":{"metadata":{"name":"b"},"text":"as of 7"}}
	// {"type":"SYNCED","revision":"7","count":2}
	// {"type":"MODIFIED","revision":"8","id":"uid-a/8","resource":"notes","object":{"metadata":{"name":"a"},"text":"as of 8"}}
	// {"type":"DELETED","revision":"9","id":"uid-b/9/deleted","resource":"notes","object":{"metadata":{"name":"b"},"text":"as of 9"}}
	// true 9
}
