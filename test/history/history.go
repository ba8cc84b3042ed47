// Package history reads the writes that an etcd has committed, for package check.
package history

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

// Reader has the writes of one resource, from etcd's watch.
type Reader struct {
	Prefix string             // of the resource's keys in etcd, such as "/registry/configmaps/"
	Read   keepwatch.Revision // the writes up to it have been read; those of the start are not
	Writes []check.Write
}

// ReadTo reads all writes up to a revision. They stay available after etcd compacts them.
func (h *Reader) ReadTo(ctx context.Context, etcd *clientv3.Client, to keepwatch.Revision) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := etcd.Watch(ctx, h.Prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(h.Read)+1),
		clientv3.WithCreatedNotify())
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for h.Read < to {
		select {
		case answer, ok := <-watch:
			if !ok {
				return fmt.Errorf("etcd ended the watch of %s: %w", h.Prefix, ctx.Err())
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

func (h *Reader) add(answer clientv3.WatchResponse) error {
	if err := answer.Err(); err != nil {
		return fmt.Errorf("etcd's history of %s behind %d: %w", h.Prefix, h.Read, err)
	}
	for _, event := range answer.Events {
		revision := keepwatch.Revision(event.Kv.ModRevision)
		namespace, name, _ := strings.Cut(strings.TrimPrefix(string(event.Kv.Key), h.Prefix), "/")
		write := check.Write{Revision: revision, Key: keepwatch.Key{Namespace: namespace, Name: name}}
		if event.Type == clientv3.EventTypePut {
			o, err := Parse(event.Kv.Value, revision)
			if err != nil {
				return err
			}
			write.Object = o
		}
		h.Writes = append(h.Writes, write)
		h.Read = revision
	}
	if answer.IsProgressNotify() {
		h.Read = max(h.Read, keepwatch.Revision(answer.Header.Revision))
	}
	return nil
}

// All returns the history for package check, up to the newest revision.
func (h *Reader) All(newest keepwatch.Revision) check.History {
	return check.History{Epochs: []check.Epoch{{Writes: h.Writes, Last: newest}}, Content: content}
}

// Metadata is All for consumers of metadata alone.
func (h *Reader) Metadata(newest keepwatch.Revision) check.History {
	all := h.All(newest)
	all.Content = metadataOf
	return all
}
