package sinktest

import (
	"context"
	"math/rand/v2"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// Split returns a sink with a planted fault: it commits the cursors of a batch first, in a transaction of their own, and
// the process ends in between at times. [Run] must notice it.
func Split(s sink.Sink, seed uint64) sink.Sink {
	return &split{s, rand.New(rand.NewPCG(seed, 10))}
}

type split struct {
	sink.Sink
	random *rand.Rand
}

func (s *split) Write(ctx context.Context, batch sink.Batch) error {
	cursors := sink.Batch{Time: batch.Time}
	for _, p := range batch.Pieces {
		p.Messages = nil
		cursors.Pieces = append(cursors.Pieces, p)
	}
	if err := s.Sink.Write(ctx, cursors); err != nil {
		return err
	}
	if s.random.IntN(10) == 0 {
		return sink.Unavailablef("the process has ended between cursors and events")
	}
	return s.Sink.Write(ctx, batch)
}
