package history

import (
	"context"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// latest is what the replays at the end of the history wait for. It is read once for all of them.
type latest struct {
	lock chan struct{} // is full while it is read or compared
	view *View         // without tables
	read time.Time
}

// mayHaveMore reports whether there may be something after a point of a resource, which the database had within
// pollEvery.
func (h *History) mayHaveMore(ctx context.Context, resource, namespace string, at sink.Point) (bool, error) {
	select {
	case h.latest.lock <- struct{}{}:
		defer func() { <-h.latest.lock }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	if h.latest.view == nil || time.Since(h.latest.read) >= pollEvery {
		err := h.View(ctx, func(v *View) error {
			h.latest.view, h.latest.read = &View{streams: v.streams, gaps: v.gaps}, time.Now()
			return nil
		})
		if err != nil {
			return false, err
		}
	}
	v := h.latest.view
	of, err := v.StreamOf(resource, namespace)
	if err != nil {
		return true, nil // the replay says so
	}
	end := sink.Point{Epoch: of.Progress.Epoch, Revision: of.Progress.Cursor}
	if of.Progress.Gap == keepwatch.GapRewind {
		end.Epoch--
	}
	return at.Before(end), nil
}
