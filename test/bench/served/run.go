package served

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch/test/peer"
)

// Scale is how large a run is.
type Scale struct {
	Pods    int           // in etcd
	Idle    int           // watchers
	Writing time.Duration // of a fan-out
	Storm   Storm
	Restart restartClients // of keepwatch serve
	Writes  int            // of each kind, by each number of writers
	// Forwarded is the number of requests of each kind that a proxy forwards.
	Forwarded int
	Rows      *regexp.Regexp // that are measured
}

// step is a part of a run.
type step struct {
	name string
	do   func(context.Context) error
}

// Run measures steps of an API server that has the data. A step that fails has no
// figures, and the next ones follow.
func (r *Report) Run(ctx context.Context, s *Server, steps []step, rows *regexp.Regexp) error {
	for i, step := range steps {
		steps[i].do = func(ctx context.Context) error {
			if err := s.revive(ctx); err != nil {
				return err
			}
			return step.do(ctx)
		}
	}
	return r.take(ctx, s.by, steps, rows)
}

// reads are starts, lists and watches.
func (s *Server) reads(r *Report, w *Writer, scale Scale) []step {
	steps := []step{{startRow, func(ctx context.Context) error { return s.measureStart(ctx, r) }}}
	for _, l := range firstLists {
		steps = append(steps, step{firstRow(l), func(ctx context.Context) error {
			return s.measureFirst(ctx, r, l, scale.Pods)
		}})
	}
	for _, l := range []listMode{listJSON, listGzip, listProtobuf} {
		steps = append(steps, step{l.Row, func(ctx context.Context) error { return s.measureList(ctx, r, l, scale.Pods) }})
	}
	steps = append(steps,
		step{warmRow, func(ctx context.Context) error { return s.measureRest(ctx, r) }},
		step{listNamespace.Row, func(ctx context.Context) error {
			return s.measureList(ctx, r, listNamespace, min(scale.Pods, 1000))
		}},
		step{listPages.Row, func(ctx context.Context) error { return s.measurePages(ctx, r, scale.Pods) }},
		step{listTable.Row, func(ctx context.Context) error { return s.measureList(ctx, r, listTable, scale.Pods) }},
		step{listTableGzip.Row, func(ctx context.Context) error { return s.measureList(ctx, r, listTableGzip, scale.Pods) }},
		step{watchListJSON.Row, func(ctx context.Context) error {
			return s.measureWatchList(ctx, r, watchListJSON, scale.Pods)
		}},
		step{watchListProtobuf.Row, func(ctx context.Context) error {
			return s.measureWatchList(ctx, r, watchListProtobuf,
				scale.Pods)
		}},
		step{idleRow, func(ctx context.Context) error { return s.measureIdle(ctx, r, scale.Idle) }})
	for _, f := range fanOuts {
		steps = append(steps, step{f.row(), func(ctx context.Context) error {
			newest, err := s.newest(ctx)
			if err != nil {
				return err
			}
			return s.measureFanOut(ctx, r, f, watchPath(newest), w.write, scale.Writing)
		}})
	}
	return steps
}

// overload is a restart with many clients, and many lists at once.
func (s *Server) overload(r *Report, w *Writer, scale Scale) []step {
	kill := func() error { s.Kill(); return nil }
	steps := []step{{scale.Restart.row(), func(ctx context.Context) error {
		return s.measureRestart(ctx, r, w, scale.Restart, kill, s.Restart)
	}}}
	for _, l := range []listMode{listJSON, listProtobuf, listGzip} {
		steps = append(steps, step{stormRow(scale.Storm.Lists, l), func(ctx context.Context) error {
			return s.measureStorm(ctx, r, scale.Storm, l, scale.Pods)
		}})
	}
	return steps
}

// writes are writes of each kind, by each number of writers.
func (s *Server) writes(r *Report, scale Scale) []step {
	var steps []step
	for _, writers := range writerCounts {
		steps = append(steps, step{writeStep(writers), func(ctx context.Context) error {
			return s.measureWrites(ctx, r, writers, scale.Writes)
		}})
	}
	return steps
}

// revive restarts a server that an earlier measurement has ended, and checks that it has
// the data.
func (s *Server) revive(ctx context.Context) error {
	select {
	case <-s.process().Done():
		if err := s.Restart(ctx); err != nil {
			return err
		}
	default:
	}
	return s.waitForPods(ctx)
}

// RunPlain measures the plain server with the answers of an API server, which runs.
func (r *Report) RunPlain(ctx context.Context, bodies *Bodies, scale Scale) error {
	p, err := StartPlain(ctx, bodies)
	if err != nil {
		return err
	}
	defer p.End()
	var steps []step
	for _, l := range plainLists {
		steps = append(steps, step{l.Row, func(ctx context.Context) error { return p.measureList(ctx, r, l) }})
	}
	for _, f := range fanOuts {
		steps = append(steps, step{f.row(), func(ctx context.Context) error {
			return p.measureFanOut(ctx, r, f, "/watch", p.publish, scale.Writing)
		}})
	}
	return r.take(ctx, PlainGo, steps, scale.Rows)
}

// SaveBodies saves a server's answers in a folder, for the plain server.
func SaveBodies(ctx context.Context, server *peer.Server, dir string) (*Bodies, error) {
	s, err := NewServer(Keepwatch, server, 1)
	if err != nil {
		return nil, err
	}
	if err := s.revive(ctx); err != nil {
		return nil, err
	}
	return s.saveBodies(ctx, dir)
}

// take runs the steps whose rows are selected, each with a deadline.
func (r *Report) take(ctx context.Context, by Contender, steps []step, rows *regexp.Regexp) error {
	const stepTimeout = 10 * time.Minute
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !rows.MatchString(s.name) {
			continue
		}
		within, cancel := context.WithTimeout(ctx, stepTimeout)
		if err := s.do(within); err != nil {
			why, _, _ := strings.Cut(err.Error(), "\n") // the rest is a server's log
			failure := fmt.Sprintf("%s: %s: FAILED: %s", by, s.name, why)
			r.run.Failed = append(r.run.Failed, failure)
			r.Progress("%s", failure)
		}
		cancel()
	}
	return nil
}
