package rawwatch

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
)

// progressInterval is the interval of progress requests to etcd's watch.
const progressInterval = 20 * time.Millisecond

// history has the writes that etcd has committed of one resource, from etcd's watch.
type history struct {
	resource
	read   keepwatch.Revision // up to where
	writes []check.Write
}

// readTo reads all writes up to a revision. They stay available after etcd compacts them.
func (h *history) readTo(ctx context.Context, etcd *clientv3.Client, to keepwatch.Revision) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := etcd.Watch(ctx, h.prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(h.read)+1), clientv3.WithCreatedNotify())
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for h.read < to {
		select {
		case answer, ok := <-watch:
			if !ok {
				return fmt.Errorf("etcd ended the watch of %s: %w", h.prefix, ctx.Err())
			}
			if err := h.add(answer); err != nil {
				return err
			}
		case <-tick.C:
			if err := etcd.RequestProgress(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (h *history) add(answer clientv3.WatchResponse) error {
	if err := answer.Err(); err != nil {
		return fmt.Errorf("etcd's history of %s behind %d: %w", h.prefix, h.read, err)
	}
	for _, event := range answer.Events {
		revision := keepwatch.Revision(event.Kv.ModRevision)
		namespace, name, _ := strings.Cut(strings.TrimPrefix(string(event.Kv.Key), h.prefix), "/")
		write := check.Write{Revision: revision, Key: keepwatch.Key{Namespace: namespace, Name: name}}
		if event.Type == clientv3.EventTypePut {
			o, err := parse(event.Kv.Value, revision)
			if err != nil {
				return err
			}
			write.Object = o
		}
		h.writes = append(h.writes, write)
		h.read = revision
	}
	if answer.IsProgressNotify() {
		h.read = max(h.read, keepwatch.Revision(answer.Header.Revision))
	}
	return nil
}

// all is the history for package check, up to the newest revision.
func (h *history) all(newest keepwatch.Revision) check.History {
	return check.History{Epochs: []check.Epoch{{Writes: h.writes, Last: newest}}, Content: content}
}
