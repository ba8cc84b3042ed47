package sink

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/keepwatch/keepwatch/stream"
)

// Sink stores the pieces of several streams. One goroutine calls its methods. After an error
// of Write, and after Close, a sink must be opened anew.
type Sink interface {
	// Open connects, makes or migrates the tables, and returns what is stored of each stream,
	// in the order of streams. It shuts out every other writer until Close or the end of the
	// process. It returns an [Unavailable] if another attempt may succeed. A
	// stream that the sink has not stored before is empty.
	Open(ctx context.Context, streams []Stream) ([]Stored, error)
	// Write commits pieces of different streams in one transaction: all or none. After an error
	// the caller does not know which, and opens the sink again.
	Write(ctx context.Context, batch Batch) error
	// Close ends the connection. It may be called more than once, also after a failed Open.
	Close() error
}

// Checker is a sink whose server may lose commits without an error of Write: a Postgres whose standby is promoted.
// While nothing is written, a transfer calls Check from time to time, from the goroutine of Write.
type Checker interface {
	// Check returns an error as Write does if the connection has ended, or another process is the writer.
	Check(ctx context.Context) error
}

// Stream is one of the streams that a sink stores.
type Stream struct {
	ID stream.Identity
	// Line is the number of the line of revisions, from 0 on: the resources that are stored in
	// one etcd are on one line.
	Line int
	// Type is what the server says of the resource, nil if that is not known.
	Type *Type
	// Seen is the time from which on the type counts, by the clock of batches. A transfer sets it at each Open.
	Seen time.Time
}

// EnterCluster stores what the streams of an Open know of their cluster in the identities of all streams that a sink
// has stored. It returns an error if one of these is of another cluster, whose revisions are another sequence: a sink
// has those of one. A stored stream without a UID, which could not be read, has that of another one with the same
// address.
func EnterCluster(stored []*stream.Identity, streams []Stream) error {
	uids := map[string]string{} // by address
	for _, id := range stored {
		if id.Cluster.UID != "" {
			uids[id.Cluster.Server] = id.Cluster.UID
		}
	}
	for _, id := range stored {
		id.Cluster.UID = cmp.Or(id.Cluster.UID, uids[id.Cluster.Server])
		for _, s := range streams {
			if !id.Cluster.Same(s.ID.Cluster) {
				return fmt.Errorf("it has the objects of %s, not of cluster %s", id, s.ID.Cluster)
			}
			id.Cluster = id.Cluster.Updated(s.ID.Cluster)
		}
	}
	return nil
}

// Stored is what a sink has stored of one stream.
type Stored struct {
	// Stored has the position and the entries, if the sink stores them with the rows.
	stream.Stored
	// State, if set, is the state of the stream, beside a sink that stores no positions. The stream commits to
	// it after Write has returned, so that a crash in between repeats the piece. The progress is its note, as
	// JSON. Close closes it.
	State    stream.State
	Progress Progress
	// Time is that of the last batch with a piece of the stream.
	Time time.Time
}

// Count returns the number of objects that are stored.
func (s *Stored) Count() uint64 {
	if s.State == nil {
		return uint64(s.Entries.Len())
	}
	_, n := stream.Committed(s.State)
	return n
}

// Batch is what a sink commits in one transaction.
type Batch struct {
	// Time is the time of the batch, in UTC and whole milliseconds. It never goes back.
	Time   time.Time
	Pieces []Piece
}

// Piece is a piece of one stream.
type Piece struct {
	Stream int // the index in the streams of Open
	stream.Piece
	// Before and After are the progress of the stream before and after the piece.
	Before, After Progress
}
