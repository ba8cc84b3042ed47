package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/server/source/etcd"
	"github.com/keepwatch/keepwatch/store"
)

// writeLog records the writes, from etcd's answers to them alone.
type writeLog struct {
	fixture
	writes []check.Write
	live   map[keepwatch.Key]*writtenObject
	newest keepwatch.Revision
}

// writtenObject is a state as it was written.
type writtenObject struct {
	key      keepwatch.Key
	created  keepwatch.Revision
	revision keepwatch.Revision
	value    string
}

func (o *writtenObject) Key() keepwatch.Key           { return o.key }
func (o *writtenObject) UID() keepwatch.UID           { return keepwatch.UID(o.created.String()) }
func (o *writtenObject) Revision() keepwatch.Revision { return o.revision }

func content(o keepwatch.Object) string {
	switch o := o.(type) {
	case *writtenObject:
		return o.value
	case *etcd.Object:
		return string(o.Value())
	}
	return ""
}

// op is one write of a transaction; an empty value deletes.
type op struct{ key, value string }

// commit writes a transaction with one operation per key.
func (l *writeLog) commit(t *rapid.T, ops []op) {
	var thens []clientv3.Op
	for _, o := range ops {
		if o.value == "" {
			thens = append(thens, clientv3.OpDelete(l.prefix+o.key))
		} else {
			thens = append(thens, clientv3.OpPut(l.prefix+o.key, o.value))
		}
	}
	answer, err := l.Client.Txn(t.Context()).Then(thens...).Commit()
	if err != nil {
		t.Fatal(err)
	}
	l.newest = keepwatch.Revision(answer.Header.Revision)
	for _, o := range ops {
		l.record(o, l.newest)
	}
}

// record records the effect of one operation.
func (l *writeLog) record(o op, r keepwatch.Revision) {
	key := keepwatch.Key{Namespace: o.key[:1], Name: o.key[2:]}
	before := l.live[key]
	if o.value == "" {
		if before != nil {
			delete(l.live, key)
			l.writes = append(l.writes, check.Write{Revision: r, Key: key})
		}
		return
	}
	now := &writtenObject{key: key, created: r, revision: r, value: o.value}
	if before != nil {
		now.created = before.created
	}
	l.live[key] = now
	l.writes = append(l.writes, check.Write{Revision: r, Key: key, Object: now})
}

// TestStoreEqualsEtcd writes at random while a reflector feeds a store, compacts, and
// interrupts watches. It judges what a consumer receives, and what the store shows, by the
// promises.
func TestStoreEqualsEtcd(t *testing.T) {
	client := dial(t, clientv3.Config{Endpoints: shared.endpoints()})
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		prefix := fmt.Sprintf("/registry/property%d.%d/", time.Now().UnixNano(), runs)
		source, err := etcd.New(client, etcd.Options{Prefix: prefix, PageSize: rapid.Int64Range(1, 5).Draw(t, "page size")})
		if err != nil {
			t.Fatal(err)
		}
		judgeRun(t, fixture{client, source, prefix})
	})
}

func judgeRun(t *rapid.T, w fixture) {
	l := &writeLog{fixture: w, live: map[keepwatch.Key]*writtenObject{}}
	keys := rapid.SampledFrom([]string{"a/1", "a/1-2", "a/2", "a/3", "b/1", "b/11"})
	transaction := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) op {
		o := op{key: keys.Draw(t, "key")}
		if rapid.IntRange(0, 3).Draw(t, "kind") > 0 {
			o.value = strconv.Itoa(rapid.IntRange(1, 999).Draw(t, "value"))
		}
		return o
	}), 1, 5, func(o op) string { return o.key })
	l.commit(t, []op{{"z/0", "first"}})
	before := l.newest

	cache := store.New(store.Options{})
	source := &interruptible{Source: w.Source}
	if rapid.Bool().Draw(t, "seeded") {
		l.commit(t, transaction.Draw(t, "before the seed"))
		if _, err := w.Seed(t.Context(), cache, l.newest-before); err != nil {
			t.Fatal(err)
		}
	}
	stop := runReflector(t, source, cache)
	defer stop()
	consumer := &consumer{watcher: cache.Watch(store.Cursor{}, store.Filter{})}

	t.Repeat(map[string]func(*rapid.T){
		"write":  func(t *rapid.T) { l.commit(t, transaction.Draw(t, "transaction")) },
		"write ": func(t *rapid.T) { l.commit(t, transaction.Draw(t, "transaction")) },
		"elsewhere": func(t *rapid.T) {
			if _, err := w.Client.Put(t.Context(), "/elsewhere", ""); err != nil {
				t.Fatal(err)
			}
		},
		"compact": func(t *rapid.T) {
			back := rapid.Int64Range(0, 3).Draw(t, "back")
			// An earlier run may have compacted it.
			w.Compact(t.Context(), int64(l.newest)-back)
		},
		"interrupt": func(*rapid.T) { source.interrupt() },
		"read":      func(t *rapid.T) { consumer.read(t, cache) },
	})

	newest, err := w.Newest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	timeout := time.NewTimer(await.Deadline)
	defer timeout.Stop()
	for consumer.read(t, cache); consumer.watcher.Cursor().Revision < newest; consumer.read(t, cache) {
		select {
		case <-consumer.changed:
		case <-timeout.C:
			t.Fatalf("the store is at %d, newest is %d", cache.Revision(), newest)
		}
	}
	history := check.History{
		Epochs:  []check.Epoch{{Writes: l.writes, Last: max(newest, consumer.watcher.Cursor().Revision)}},
		Content: content,
	}
	for _, violation := range check.Judge(history, nil, check.Transcript{Records: consumer.records}) {
		t.Error(violation)
	}
}

// consumer records what it receives.
type consumer struct {
	watcher *store.Watcher
	changed <-chan struct{}
	records []check.Record
}

// read receives all deliveries, and reads the store.
func (c *consumer) read(t *rapid.T, cache *store.Store) {
	for {
		d, newer, err := c.watcher.TryNext()
		switch {
		case err != nil:
			t.Fatal(err)
		case d == nil:
			c.changed = newer
			if state := cache.Snapshot(); state.Revision() > 0 {
				c.records = append(c.records, check.Shown{Revision: state.Revision(), Objects: slices.Collect(state.All())})
			}
			return
		}
		c.records = append(c.records, check.Received{Delivery: d})
	}
}

// runReflector runs a reflector until stop is called.
func runReflector(t *rapid.T, s keepwatch.Source, target keepwatch.Target) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- reflector.New(s, target, reflector.Options{Paged: true}).Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the reflector ended: %v", err)
		}
	}
}

// interruptible is a source whose watch the test can interrupt.
type interruptible struct {
	*etcd.Source
	mu   sync.Mutex
	open *interruptibleWatch
}

type interruptibleWatch struct {
	keepwatch.Watch
	interrupted atomic.Bool
}

func (c *interruptible) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	w, err := c.Source.Watch(ctx, from)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = &interruptibleWatch{Watch: w}
	return c.open, nil
}

func (c *interruptible) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open != nil {
		c.open.interrupted.Store(true)
		c.open.Close()
	}
}

// Next fails with a kind after which a reflector reopens the watch at once.
func (w *interruptibleWatch) Next() (keepwatch.Batch, error) {
	b, err := w.Watch.Next()
	if err != nil && w.interrupted.Load() {
		err = keepwatch.Failed(keepwatch.Idle, "interrupted")
	}
	return b, err
}
