package served

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// Writer updates pods in etcd itself, so that servers have no work with writes except
// their events. An update puts the same content again: a server sees a new revision, and
// sends an event.
type Writer struct {
	etcd *clientv3.Client
	pods []pod
}

type pod struct{ key, value string }

// written is an update: its revision, and the time of the request.
type written struct {
	revision int64
	at       time.Time
}

const podPrefix = "/registry/pods/"

// NewWriter selects n of the pods in etcd, spread over all namespaces.
func NewWriter(ctx context.Context, etcd *clientv3.Client, n int) (*Writer, error) {
	all, err := etcd.Get(ctx, podPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	w := &Writer{etcd: etcd}
	n = min(n, len(all.Kvs))
	for i := range n {
		key := string(all.Kvs[i*len(all.Kvs)/n].Key)
		found, err := etcd.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		if len(found.Kvs) != 1 {
			return nil, fmt.Errorf("%s was deleted", key)
		}
		w.pods = append(w.pods, pod{key, string(found.Kvs[0].Value)})
	}
	if len(w.pods) == 0 {
		return nil, fmt.Errorf("etcd has no pods")
	}
	return w, nil
}

// parallel is how many updates may be on their way.
const parallel = 16

// write writes n updates, rate each second, and returns them in the order of their
// revisions. If etcd is slower, it needs longer.
func (w *Writer) write(ctx context.Context, n, rate int) ([]written, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	all, began := make([]written, n), time.Now()
	for i := range n {
		due := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
		if err := pause(ctx, time.Until(due)); err != nil {
			break
		}
		group.Go(func() error {
			revision, at, err := w.update(ctx, i)
			all[i] = written{revision, at}
			return err
		})
	}
	err := group.Wait()
	slices.SortFunc(all, func(a, b written) int { return int(a.revision - b.revision) })
	return all, err
}

func (w *Writer) update(ctx context.Context, i int) (revision int64, at time.Time, err error) {
	p := w.pods[i%len(w.pods)]
	at = time.Now()
	answer, err := w.etcd.Put(ctx, p.key, p.value)
	if err != nil {
		return 0, at, err
	}
	return answer.Header.Revision, at, nil
}

// keepWriting writes at a rate, in the background, until the function it returns is
// called, which has the error.
func (w *Writer) keepWriting(ctx context.Context, rate int) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var writing sync.WaitGroup
	var err error
	writing.Go(func() {
		for i := 0; pause(ctx, time.Second/time.Duration(rate)) == nil; i++ {
			if _, _, failed := w.update(ctx, i); failed != nil && ctx.Err() == nil {
				err = failed
				return
			}
		}
	})
	return func() error {
		cancel()
		writing.Wait()
		return err
	}
}

// revision is etcd's newest.
func (w *Writer) revision(ctx context.Context) (int64, error) {
	answer, err := w.etcd.Get(ctx, podPrefix, clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return answer.Header.Revision, nil
}
