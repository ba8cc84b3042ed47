package stream_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/stream"
)

// replicas are a source whose lists are answered by replicas, some of which are late.
type replicas struct {
	notebook
	lists []func() (keepwatch.Page, error)
	end   func()
}

func (r *replicas) List(context.Context, keepwatch.ListRequest) (keepwatch.Page, error) {
	list := r.lists[0]
	r.lists = r.lists[1:]
	return list()
}

func (r *replicas) Watch(_ context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	if len(r.lists) == 0 {
		r.end()
	}
	return &bookmark{from: from}, nil
}

// bookmark is a watch that has a bookmark, and then no history.
type bookmark struct{ from keepwatch.Revision }

func (b *bookmark) Next() (keepwatch.Batch, error) {
	if b.from == 0 {
		return keepwatch.Batch{}, keepwatch.Failed(keepwatch.Expired, "the history is gone")
	}
	batch := keepwatch.Batch{From: b.from, To: b.from + 1}
	b.from = 0
	return batch, nil
}

func (b *bookmark) Close() {}

// A list of a replica that is behind what a part of another one has delivered is no rewind. A list that shows the
// source's newest state is one.
func TestLateReplica(t *testing.T) {
	page := func(revision keepwatch.Revision, next string, notes ...keepwatch.Object) func() (keepwatch.Page, error) {
		return func() (keepwatch.Page, error) {
			return keepwatch.Page{Revision: revision, Continue: next, Objects: notes}, nil
		}
	}
	expired := func() (keepwatch.Page, error) {
		return keepwatch.Page{}, keepwatch.Failed(keepwatch.Expired, "the token is too old")
	}
	tooLarge := func() (keepwatch.Page, error) {
		failure := keepwatch.Failed(keepwatch.RevisionTooLarge, "the revision is too large")
		failure.RetryAfter = reflectorWait
		return keepwatch.Page{}, failure
	}
	first, part := page(10, "", note{"a", 5}, note{"b", 7}), page(20, "p2", note{"a", 18})
	late, newest := page(15, "", note{"a", 12}, note{"b", 7}), page(21, "", note{"a", 18}, note{"b", 7})
	for name, test := range map[string]struct {
		lists []func() (keepwatch.Page, error)
		gap   string
	}{
		"late": {[]func() (keepwatch.Page, error){first, part, expired, late, late, newest},
			`{"type":"GAP","from":"11","to":"21","reason":"expired"`},
		"restored": {[]func() (keepwatch.Page, error){first, part, expired, late, tooLarge, late, late},
			`{"type":"GAP","from":"11","to":"15","reason":"rewind"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var out bytes.Buffer
				target, err := stream.New(stream.NDJSON(&out, "notes"), stream.InMemory(), stream.Options{})
				if err != nil {
					t.Fatal(err)
				}
				source := &replicas{lists: test.lists, end: cancel}
				if err := reflector.New(source, target, reflector.Options{}).Run(ctx); !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				text := out.String()
				if !strings.Contains(text, test.gap) || strings.Contains(text, "rewind") != strings.Contains(test.gap, "rewind") {
					t.Errorf("got\n%s\nwant %s", text, test.gap)
				}
			})
		})
	}
}

// reflectorWait is longer than the reflector waits for a late replica.
const reflectorWait = 40e9
