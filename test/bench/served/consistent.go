package served

import (
	"context"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
)

// A consistent list, of one namespace, waits until the proxy knows that its state of all pods is the newest.
const (
	busyRow  = "consistent LIST of one namespace, pods are written 50 times a second"
	quietRow = "consistent LIST of one namespace, no pods are written"
	waited   = "more than with resourceVersion=0"
)

const (
	busyReads  = 20
	quietReads = 5
	// apart is more than the time for which a watch that confirms a quiet state is open.
	apart = 4 * time.Second
)

// measureBusy measures consistent lists while pods are written.
func (p *Proxied) measureBusy(ctx context.Context, r *Report) error {
	stop := p.writer.keepWriting(ctx, 50)
	err := p.measureConsistent(ctx, r, busyRow, busyReads, func() error { return pause(ctx, retryInterval) })
	if failed := stop(); err == nil {
		err = failed
	}
	return err
}

// measureQuiet measures consistent lists after another resource was written: nothing shows that pods were not.
func (p *Proxied) measureQuiet(ctx context.Context, r *Report) error {
	w, err := p.direct.newAPIWriter()
	if err != nil {
		return err
	}
	defer w.close()
	turn := 0
	return p.measureConsistent(ctx, r, quietRow, quietReads, func() error {
		if err := pause(ctx, apart); err != nil {
			return err
		}
		turn++
		return w.send(ctx, http.MethodPatch, settings, string(types.MergePatchType), annotate(turn), http.StatusOK)
	})
}

// measureConsistent measures consistent lists, each after a call of before, beside lists of any state, and those of the
// server.
func (p *Proxied) measureConsistent(ctx context.Context, r *Report, row string, reads int, before func() error) error {
	if err := p.followOnly(ctx, asJSONName); err != nil {
		return err
	}
	direct, err := p.direct.dial(ctx)
	if err != nil {
		return err
	}
	defer direct.close()
	proxied, err := p.proxy.dial(ctx)
	if err != nil {
		return err
	}
	defer proxied.close()
	var server, consistent, added []time.Duration
	err = p.fromMemory(ctx, func() error {
		for range reads {
			if err := before(); err != nil {
				return err
			}
			newest, err := proxied.time(ctx, listNamespace)
			if err != nil {
				return err
			}
			cached, err := proxied.time(ctx, inAnyState(listNamespace))
			if err != nil {
				return err
			}
			at, err := direct.time(ctx, listNamespace)
			if err != nil {
				return err
			}
			server, consistent, added = append(server, at), append(consistent, newest), append(added, newest-cached)
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.Add(p.direct.by, row, seconds(wallTime, figures.Median(server)))
	r.Add(p.proxy.by, row, seconds(wallTime, figures.Median(consistent)), seconds(waited, figures.Median(added)),
		seconds("the slowest",
			slices.Max(consistent)))
	return nil
}

// time returns how long a list takes.
func (l *link) time(ctx context.Context, list listMode) (time.Duration, error) {
	began := time.Now()
	_, err := l.fetch(ctx, list.request(func([]byte) {}))
	return time.Since(began), err
}
