package served

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
	"github.com/keepwatch/keepwatch/test/bench/wire"
)

// What is measured of a server at rest.
const (
	startRow = "start with the data"
	toReady  = "exec to ready"
	warmRow  = "at rest, behind lists in each encoding"
	idleRow  = "idle watchers"
	// perWatcher is heap and stack after garbage collection: resident memory varies more by
	// garbage than by watchers.
	perWatcher = "memory per watcher"
)

// measureStart restarts the server, and measures the time until it is ready and has all
// pods and config maps.
func (s *Server) measureStart(ctx context.Context, r *Report) error {
	var walls, cpus []time.Duration
	var residents []int64
	for range s.runs {
		s.Kill()
		began := time.Now()
		if err := s.Restart(ctx); err != nil {
			return err
		}
		if err := s.waitForPods(ctx); err != nil {
			return err
		}
		wall := time.Since(began)
		cpu, err := s.process().ProcessorTime()
		if err != nil {
			return err
		}
		if err := settle(ctx); err != nil {
			return err
		}
		now, err := s.process().Memory()
		if err != nil {
			return err
		}
		walls, cpus, residents = append(walls, wall), append(cpus, cpu), append(residents, now.Resident)
	}
	r.Add(s.by, startRow,
		seconds(toReady, figures.Median(walls)), seconds(serverCPU, figures.Median(cpus)),
		size(resident, figures.Median(residents)))
	return nil
}

// waitForPods waits until the server answers from its own memory with etcd's current
// state. A server that only reports that it is ready cannot do that.
func (s *Server) waitForPods(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	etcd, err := s.Etcd().Client()
	if err != nil {
		return err
	}
	defer etcd.Close()
	now, err := etcd.Get(ctx, "any")
	if err != nil {
		return err
	}
	l, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	for _, resource := range []string{"pods", "configmaps"} {
		request := wire.Request{Accept: asJSON, Data: func([]byte) {}, Path: fmt.Sprintf(
			"/api/v1/namespaces/nobody/%s?resourceVersion=%d&resourceVersionMatch=NotOlderThan", resource, now.Header.Revision)}
		for {
			_, err := l.fetch(ctx, request)
			if err == nil {
				break
			}
			if pause(ctx, retryInterval) != nil {
				return fmt.Errorf("the server never has all %s: %w", resource, err)
			}
		}
	}
	return nil
}

// measureRest measures the memory of a server that has answered, and does nothing.
func (s *subject) measureRest(ctx context.Context, r *Report) error {
	if err := settle(ctx); err != nil {
		return err
	}
	memory, err := s.process().Memory()
	if err == nil {
		r.Add(s.by, warmRow, size(resident, memory.Resident))
	}
	return err
}

// measureIdle measures the cost of watchers that receive no events: what the memory shrinks by when they leave. The
// memory before they come is no base: it may still have what earlier rows left behind, which leaves meanwhile.
func (s *Server) measureIdle(ctx context.Context, r *Report, watchers int) error {
	newest, err := s.newest(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	c, err := s.openWatchers(ctx, watchers, watchPath(newest), 0)
	if err != nil {
		return err
	}
	defer c.close()
	opened := time.Since(began)
	with, err := s.liveAtRest(ctx, float64(watchers))
	if err != nil {
		return err
	}
	if n := c.countEnded(); n > 0 {
		return fmt.Errorf("the server ended %d of %d idle watches", n, watchers)
	}
	c.close()
	without, err := s.liveAtRest(ctx, float64(watchers))
	if err != nil {
		return err
	}
	r.Add(s.by, idleRow, count("watchers", watchers), size(perWatcher, (with-without)/float64(watchers)),
		seconds("time to open one", opened/time.Duration(watchers)))
	return nil
}

// liveAtRest returns what live returns as soon as it no longer changes: by less than 100 bytes for each of n watchers.
func (s *Server) liveAtRest(ctx context.Context, n float64) (float64, error) {
	for last := math.Inf(1); ; {
		if err := settle(ctx); err != nil {
			return 0, err
		}
		now, err := s.live(ctx)
		if err != nil || math.Abs(now-last) < 100*n {
			return now, err
		}
		last = now
	}
}

// live collects the server's garbage and returns the size of its heap and stacks.
func (s *Server) live(ctx context.Context) (float64, error) {
	l, err := s.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer l.close()
	for range 2 { // objects with finalizers are freed by the second collection only
		if _, err := l.fetch(ctx, wire.Request{Path: "/debug/pprof/heap?gc=1", Accept: "*/*",
			Data: func([]byte) {}}); err != nil {
			return 0, err
		}
	}
	metrics, err := s.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	heap, stack := metrics.Sum("go_memstats_heap_alloc_bytes", nil), metrics.Sum("go_memstats_stack_inuse_bytes", nil)
	if heap == 0 || stack == 0 {
		return 0, fmt.Errorf("/metrics has no go_memstats")
	}
	return heap + stack, nil
}

func watchPath(revision string) string { return watchOf(allPods, revision) }

// podsOf is the path of the list of a namespace's pods, or of all.
func podsOf(namespace string) string {
	if namespace == "" {
		return allPods
	}
	return "/api/v1/namespaces/" + namespace + "/pods"
}

func watchOf(path, revision string) string {
	return path + "?watch=true&timeoutSeconds=3600&resourceVersion=" + revision
}
