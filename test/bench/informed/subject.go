package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/informer/clientgo"
)

// report is the answer of a command, by name; times are in seconds.
type report map[string]float64

// subject is the informers that are measured.
type subject struct {
	wire      *wire
	informers []cache.SharedIndexInformer
	handlers  []*handler
	base      uint64        // of the heap, before the start
	counted   time.Duration // of processor time, at the last count
}

// stamp is the annotation with the time of an update.
const stamp = "bench.keepwatch/stamp"

// handler counts its calls.
type handler struct {
	calls atomic.Int64
	mu    sync.Mutex
	late  []time.Duration // of stamped updates
}

func (h *handler) OnAdd(any, bool) { h.calls.Add(1) }
func (h *handler) OnDelete(any)    { h.calls.Add(1) }
func (h *handler) OnUpdate(_, obj any) {
	h.calls.Add(1)
	written, err := strconv.ParseInt(obj.(metav1.Object).GetAnnotations()[stamp], 10, 64)
	if err != nil {
		return
	}
	late := time.Since(time.Unix(0, written))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.late = append(h.late, late)
}

func (h *handler) drainLatencies() []time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.late
	h.late = nil
	return taken
}

func (s *subject) sync(ctx context.Context) (report, error) {
	s.base = heap()
	began, cpu := time.Now(), cpuTime()
	var synced []cache.InformerSynced
	for _, inf := range s.informers {
		h := &handler{}
		handle, err := inf.AddEventHandler(h)
		if err != nil {
			return nil, err
		}
		s.handlers = append(s.handlers, h)
		synced = append(synced, handle.HasSynced)
		go inf.RunWithContext(ctx)
	}
	if err := until(ctx, func() bool {
		return !slices.ContainsFunc(synced, func(ok cache.InformerSynced) bool { return !ok() })
	}); err != nil {
		return nil, err
	}
	_, peak, err := resident()
	return report{"seconds": time.Since(began).Seconds(), "cpu": (cpuTime() - cpu).Seconds(), "peak": peak,
		"objects": float64(s.objects())}, err
}

func (s *subject) objects() (n int) {
	for _, inf := range s.informers {
		n += len(inf.GetStore().ListKeys())
	}
	return n
}

// until polls a condition, at an interval that is short compared with the measured times.
func until(ctx context.Context, condition func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for !condition() {
		select {
		case <-ctx.Done():
			return errors.New("not within 10 minutes")
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (s *subject) heap(context.Context) (report, error) {
	used := heap() - s.base
	return report{"perObject": float64(used) / float64(s.objects())}, nil
}

// read measures the first informer's cache.
func (s *subject) read(context.Context) (report, error) {
	store := s.informers[0].GetIndexer()
	var keys []string // in random order, and not the cache's own strings: as from a work queue
	for _, key := range store.ListKeys() {
		keys = append(keys, strings.Clone(key))
	}
	slices.Sort(keys)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	apps := store.ListIndexFuncValues("app")
	if len(keys) == 0 {
		return nil, errors.New("nothing to read")
	}
	all := func() iter.Seq[any] { return slices.Values(store.List()) }
	if ours, ok := s.informers[0].(*clientgo.Shared); ok {
		all = ours.All
	}
	return report{
		"get": each(1000, func(i int) { _, _, _ = store.GetByKey(keys[i%len(keys)]) }),
		"list": each(1, func(int) {
			if len(store.List()) != len(keys) {
				panic("a list of another length")
			}
		}),
		"walk": each(1, func(int) {
			n := 0
			for obj := range all() {
				if obj != nil {
					n++
				}
			}
			if n != len(keys) {
				panic("a walk of another length")
			}
		}),
		"byIndex": each(10, func(i int) { _, _ = store.ByIndex("app", apps[i%len(apps)]) }),
	}, nil
}

// each returns the average time of a call, measured for a second. It reads the clock after
// every few calls.
func each(few int, call func(int)) float64 {
	began, n := time.Now(), 0
	for time.Since(began) < time.Second {
		for range few {
			call(n)
			n++
		}
	}
	return time.Since(began).Seconds() / float64(n)
}

func (s *subject) relist(ctx context.Context) (report, error) {
	_ = heap()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return nil, err
	}
	before, _, err := resident()
	if err != nil {
		return nil, err
	}
	calls, settled, cpu, began := s.handlers[0].calls.Load(), s.wire.ended(), cpuTime(), time.Now()
	s.wire.expire()
	if err := until(ctx, func() bool { return s.wire.ended() > settled }); err != nil {
		return nil, err
	}
	took := time.Since(began)
	time.Sleep(time.Second) // for callbacks that are still queued
	_, peak, err := resident()
	return report{
		"seconds": took.Seconds(), "cpu": (cpuTime() - cpu).Seconds(), "growth": peak/before - 1,
		"callbacks": float64(s.handlers[0].calls.Load() - calls),
	}, err
}

func (w *wire) ended() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.settled
}

// count returns the number of stamped updates since its last call, their latencies and the processor time of one.
func (s *subject) count(context.Context) (report, error) {
	var late []time.Duration
	for _, h := range s.handlers {
		late = append(late, h.drainLatencies()...)
	}
	slices.Sort(late)
	r := report{"updates": float64(len(late))}
	spent := s.counted
	s.counted = cpuTime()
	if len(late) > 0 {
		r["cpu"] = (s.counted - spent).Seconds() / float64(len(late))
		r["p50"] = late[len(late)/2].Seconds()
		r["p99"] = late[len(late)*99/100].Seconds()
	}
	return r, nil
}

func (s *subject) updates(ctx context.Context) (report, error) {
	seen := map[*handler]bool{}
	err := until(ctx, func() bool {
		for _, h := range s.handlers {
			seen[h] = seen[h] || len(h.drainLatencies()) > 0
		}
		for _, h := range s.handlers {
			if !seen[h] {
				return false
			}
		}
		return true
	})
	return report{"informers": float64(len(s.handlers))}, err
}

func (s *subject) requests(context.Context) (report, error) {
	s.wire.mu.Lock()
	defer s.wire.mu.Unlock()
	return report{"lists": float64(s.wire.lists), "probes": float64(s.wire.probes), "tooOld": float64(s.wire.tooOld)}, nil
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// resident is how many bytes of memory the process has and had at most.
func resident() (now, peak float64, err error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kib float64
		switch {
		case strings.HasPrefix(line, "VmRSS:"):
			_, err = fmt.Sscanf(line, "VmRSS: %f kB", &kib)
			now = kib * 1024
		case strings.HasPrefix(line, "VmHWM:"):
			_, err = fmt.Sscanf(line, "VmHWM: %f kB", &kib)
			peak = kib * 1024
		}
		if err != nil {
			return 0, 0, err
		}
	}
	return now, peak, nil
}
