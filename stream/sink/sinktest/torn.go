package sinktest

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// Torn is a receiver that takes a part of some batches and then fails, as one does whose process or connection ends
// in the middle of a batch.
type Torn struct {
	sink.Receiver
	Random *rand.Rand
	Every  int // one batch in so many
}

// Write passes on the batch, or its first messages. A piece whose messages are cut off has no progress.
func (t *Torn) Write(ctx context.Context, batch sink.Batch) error {
	if t.Random.IntN(t.Every) > 0 {
		return t.Receiver.Write(ctx, batch)
	}
	part := sink.Batch{Time: batch.Time}
	for _, p := range batch.Pieces[:t.Random.IntN(len(batch.Pieces)+1)] {
		p.Messages = p.Messages[:t.Random.IntN(len(p.Messages)+1)]
		p.After = p.Before
		part.Pieces = append(part.Pieces, p)
	}
	if err := t.Receiver.Write(ctx, part); err != nil {
		return err
	}
	return sink.Unavailablef("the connection was lost in the middle of a batch")
}

// MemoryDir returns a directory that is removed after the test, in memory where the system has a file system there: a
// run syncs thousands of files, and does not test the disk.
func MemoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "keepwatch-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Behind is a mutant of a receiver: it returns before the receiver has the batch, so that the cursor is stored before
// the rows. What was not passed on is lost with its connection.
type Behind struct {
	sink.Receiver
	pending *sink.Batch
}

// Write passes on the batch before.
func (b *Behind) Write(ctx context.Context, batch sink.Batch) error {
	before := b.pending
	b.pending = &batch
	if before == nil {
		return nil
	}
	return b.Receiver.Write(ctx, *before)
}

// Close drops the last batch.
func (b *Behind) Close() error {
	b.pending = nil
	return b.Receiver.Close()
}

// Lossy is a mutant of a receiver: it loses one in 10 of the batches with messages.
type Lossy struct {
	sink.Receiver
	n int
}

// Write passes on the batch, or drops it.
func (l *Lossy) Write(ctx context.Context, batch sink.Batch) error {
	if !slices.ContainsFunc(batch.Pieces, func(p sink.Piece) bool { return len(p.Messages) > 0 }) {
		return l.Receiver.Write(ctx, batch)
	}
	if l.n++; l.n%10 == 0 {
		return nil
	}
	return l.Receiver.Write(ctx, batch)
}
