package served

import (
	"context"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
)

// firstRow returns the row of the first list after a start. Clients that were connected
// before request it.
func firstRow(l listMode) string { return "first " + l.Row }

// firstLists are the lists of which the first one after a start is measured.
var firstLists = []listMode{listJSON, listGzip, listProtobuf, listTable}

// measureFirst restarts the server, and measures the first list that it answers.
func (s *Server) measureFirst(ctx context.Context, r *Report, l listMode, pods int) error {
	var walls, cpus []time.Duration
	var growth int64
	for range s.runs {
		s.Kill()
		if err := s.Restart(ctx); err != nil {
			return err
		}
		if err := s.waitForPods(ctx); err != nil {
			return err
		}
		u, err := s.measureOnce(ctx, l, pods)
		if err != nil {
			return err
		}
		walls, cpus, growth = append(walls, u.wall), append(cpus, u.cpu), max(growth, u.growth)
	}
	u := usage{wall: figures.Median(walls), cpu: figures.Median(cpus), growth: growth}
	r.Add(s.by, firstRow(l), u.figures()...)
	return nil
}

// measureOnce measures one list, and sees to it that it was whole: the next one is as long, and has
// all pods.
func (s *Server) measureOnce(ctx context.Context, l listMode, pods int) (usage, error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return usage{}, err
	}
	defer conn.close()
	var length int64
	u, err := measure(s.process(), func() error {
		_, err := conn.fetch(ctx, l.request(func(p []byte) { length += int64(len(p)) }))
		return err
	})
	if err != nil {
		return usage{}, err
	}
	want, err := l.verify(ctx, conn, pods)
	if err == nil && length < want-want/50 {
		err = l.tooShort(length, want)
	}
	return u, err
}
