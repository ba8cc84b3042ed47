package served

import (
	"context"
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
	Rows    *regexp.Regexp // that are measured
}

// step is a part of a run.
type step struct {
	name string
	do   func(context.Context) error
}

// Run measures everything of an API server that has the data. A part that fails has no
// figures, and the next ones follow.
func (r *Report) Run(ctx context.Context, by Contender, api *peer.Server, w *Writer, scale Scale) error {
	server, err := NewServer(by, api)
	if err != nil {
		return err
	}
	steps := []step{{startRow, func(ctx context.Context) error { return server.measureStart(ctx, r) }}}
	for _, l := range []listMode{listJSON, listGzip, listProtobuf} {
		steps = append(steps, step{firstRow(l), func(ctx context.Context) error { return server.measureFirst(ctx, r, l, scale.Pods) }})
	}
	for _, l := range []listMode{listJSON, listGzip, listProtobuf} {
		steps = append(steps, step{l.Row, func(ctx context.Context) error { return server.measureList(ctx, r, l, scale.Pods) }})
	}
	steps = append(steps,
		step{warmRow, func(ctx context.Context) error { return server.measureRest(ctx, r) }},
		step{listNamespace.Row, func(ctx context.Context) error {
			return server.measureList(ctx, r, listNamespace, min(scale.Pods, 1000))
		}},
		step{listPages.Row, func(ctx context.Context) error { return server.measurePages(ctx, r, scale.Pods) }},
		step{listTable.Row, func(ctx context.Context) error { return server.measureList(ctx, r, listTable, scale.Pods) }},
		step{listTableGzip.Row, func(ctx context.Context) error { return server.measureList(ctx, r, listTableGzip, scale.Pods) }},
		step{watchListJSON.Row, func(ctx context.Context) error { return server.measureWatchList(ctx, r, watchListJSON, scale.Pods) }},
		step{watchListProtobuf.Row, func(ctx context.Context) error { return server.measureWatchList(ctx, r, watchListProtobuf, scale.Pods) }},
		step{idleRow, func(ctx context.Context) error { return server.measureIdle(ctx, r, scale.Idle) }})
	for _, f := range fanOuts {
		steps = append(steps, step{f.row(), func(ctx context.Context) error {
			newest, err := server.newest(ctx)
			if err != nil {
				return err
			}
			return server.measureFanOut(ctx, r, f, watchPath(newest), w.write, scale.Writing)
		}})
	}
	steps = append(steps, step{restartRow, func(ctx context.Context) error { return server.measureRestart(ctx, r, w) }})
	for _, l := range []listMode{listJSON, listProtobuf, listGzip} {
		steps = append(steps, step{stormRow(scale.Storm.Lists, l), func(ctx context.Context) error {
			return server.measureStorm(ctx, r, scale.Storm, l, scale.Pods)
		}})
	}
	for i, s := range steps {
		steps[i].do = func(ctx context.Context) error {
			if err := server.revive(ctx); err != nil {
				return err
			}
			return s.do(ctx)
		}
	}
	return r.take(ctx, by, steps, scale.Rows)
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
	s, err := NewServer(Keepwatch, server)
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
			r.Progress("%s: %s: FAILED: %s", by, s.name, why)
		}
		cancel()
	}
	return nil
}
