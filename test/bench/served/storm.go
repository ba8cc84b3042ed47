package served

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
)

// complete is the number of whole lists.
const complete = "complete"

const (
	// stormTime is how long clients wait: longer than kube-apiserver gives a request.
	stormTime = 90 * time.Second
	// reserve is the memory that the machine must have free.
	reserve = 1 << 30
)

// Storm is several lists of everything at once, each on a connection of its own.
type Storm struct {
	Lists int
	// MemoryLimit bounds a server's resident memory, in bytes. A storm that exceeds it ends,
	// and the server is killed.
	MemoryLimit int64
}

func stormRow(lists int, l listMode) string { return fmt.Sprintf("%d× %s at once", lists, l.Row) }

// measureStorm restarts the server, because the storm before may have left it in any
// state, and counts the lists that arrive whole.
func (s *Server) measureStorm(ctx context.Context, r *Report, storm Storm, l listMode, pods int) error {
	if err := s.Restart(ctx); err != nil {
		return err
	}
	if err := s.waitForPods(ctx); err != nil {
		return err
	}
	first, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer first.close()
	var length int64
	for range 2 { // the second one leaves what keepwatch caches: the storm's growth is that of the responses
		if length, err = l.verify(ctx, first, pods); err != nil {
			return err
		}
	}
	if err := settle(ctx); err != nil {
		return err
	}
	var whole atomic.Int64
	var ended error
	u, err := measure(s.process(), func() error {
		ctx, cancel := context.WithTimeout(ctx, stormTime)
		defer cancel()
		var guard errgroup.Group
		guard.Go(func() error {
			defer cancel()
			return storm.guard(ctx, s)
		})
		var lists errgroup.Group
		for range storm.Lists {
			lists.Go(func() error {
				conn, err := s.dial(ctx)
				if err != nil {
					return err
				}
				defer conn.close()
				if err := l.read(ctx, conn, length); err != nil {
					return err
				}
				whole.Add(1)
				return nil
			})
		}
		ended = lists.Wait()
		cancel()
		return guard.Wait()
	})
	row := stormRow(storm.Lists, l)
	if whole.Load() < int64(storm.Lists) {
		r.Progress("%s: %s: the first that failed: %v", s.by, row, ended)
	}
	if over, ok := errors.AsType[*memoryExceeded](err); ok {
		// The server was killed: its memory until then is a lower bound.
		r.Progress("%s: %s: %v", s.by, row, over)
		r.Add(s.by, row, count(complete, int(whole.Load())), seconds(wallTime, u.wall),
			size(growth, over.resident-over.before))
		return nil
	}
	if err != nil {
		return err
	}
	r.Add(s.by, row, append([]Figure{count(complete, int(whole.Load()))}, u.figures()...)...)
	return nil
}

// tooMuch is a storm that was ended for the sake of the machine.
type memoryExceeded struct{ before, resident, available int64 }

func (e *memoryExceeded) Error() string {
	return fmt.Sprintf("killed when it had %s and the machine had %s free",
		figures.Bytes.Format(float64(e.resident)), figures.Bytes.Format(float64(e.available)))
}

// guard watches over the machine's memory until ctx ends. If there is too little it
// kills the server.
func (storm Storm) guard(ctx context.Context, s *Server) error {
	memory, err := s.Process().Memory()
	if err != nil {
		return err
	}
	over := &memoryExceeded{before: memory.Resident}
	for pause(ctx, 20*time.Millisecond) == nil {
		if memory, err = s.Process().Memory(); err != nil {
			return err
		}
		if over.available, err = available(); err != nil {
			return err
		}
		if over.resident = memory.Resident; over.resident > storm.MemoryLimit || over.available < reserve {
			s.Kill()
			return over
		}
	}
	return nil
}
