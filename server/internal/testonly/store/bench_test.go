package store_test

import (
	"flag"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/figures"
)

var sizes = flag.String("objects", "10000,100000", "how many objects to benchmark with, from 100 on")

// seed is that of the objects that are read and written.
const seed = 1

// rounds is the number of measurements of each figure; the median counts.
const rounds = 5

// BenchmarkBesidePeers prints one table: the store, client-go's indexer and the watch
// cache of k8s.io/apiserver, on the same objects and in one run. Their rounds alternate,
// so that changes of the machine's speed affect all of them. Times are CPU time of the
// whole process, with garbage collection and background goroutines, since other processes
// may use the machine. Run it with -benchtime 1x: an iteration is one table. With -figures.record store
// it also writes the run for docs/notes-performance.md.
func BenchmarkBesidePeers(b *testing.B) {
	for b.Loop() {
		run := figures.NewRun("bench-store", contenders[1:]...)
		run.Seed = fmt.Sprint(seed)
		for size := range strings.SplitSeq(*sizes, ",") {
			n, err := strconv.Atoi(size)
			must(err)
			besidePeers(run, n)
		}
		must(run.Record())
	}
}

// contenders are the names of ours and the peers, in the order in which they are measured.
var contenders = []string{figures.Ours, "client-go", "watch cache"}

func besidePeers(run *figures.Run, n int) {
	f := newFleet(n)
	var us ours
	var indexed indexer
	var watched *watchCache
	memory := []float64{
		grown(n, func() { us = newOurs(f, 16<<20) }),
		grown(n, func() { indexed = newIndexer(f) }),
		grown(n, func() { watched = newWatchCache(f) }),
	}
	all := []contender{us, indexed, watched}
	defer func() {
		for _, c := range all {
			c.close()
		}
	}()
	row := func(name string, all []contender, prepare func(), do func(contender) int) *figures.Figure {
		figure := run.Of(figures.Number(n), name, figures.Seconds)
		measure(figure, all, prepare, do)
		print(figure)
		return figure
	}
	many := 20_000
	some := f.some(many)
	var news []keepwatch.Object
	apply := func(c contender) int { c.apply(news); return many }
	atMostTwice(row("apply one event", all, func() { news = f.updates(some) }, apply))
	inHundreds := []contender{atOnce{us}, indexed, watched}
	atMostTwice(row("apply one event, 100 at once", inHundreds, func() { news = f.updates(some) }, apply))
	atMostTwice(row("get", all, nil, func(c contender) int {
		for _, o := range some {
			c.get(o.Key())
		}
		return many
	}))
	row("list all", all, nil, func(c contender) int { c.listAll(); return 1 })
	row("list 1 % (a namespace)", all, nil, func(c contender) int {
		for range 10 {
			if got := c.listNamespace("namespace-07"); got != n/namespaces {
				panic(got)
			}
		}
		return 10
	})
	states := all[:2] // the watch cache has no snapshot that can be had from outside
	row("take a snapshot", states, nil, func(c contender) int {
		for range 10 {
			c.snapshot()
		}
		return 10
	})
	before := map[contender]any{}
	for _, c := range states {
		before[c] = c.snapshot()
	}
	news = f.updates(f.objects[:n/100])
	for _, c := range states {
		c.apply(news)
	}
	row("find the 1 % that changed", states, nil, func(c contender) int {
		if got := c.changed(before[c]); got != n/100 {
			panic(got)
		}
		return 1
	})
	figure := run.Of(figures.Number(n), "memory beyond the object", figures.Bytes)
	for i, bytes := range memory {
		figure.Set(contenders[i], 0, bytes)
	}
	print(figure)
}

// atMostTwice sets the goal of a figure: twice client-go's time.
func atMostTwice(f *figures.Figure) {
	f.Goal = "≤ 2× client-go"
	f.Missed = f.Ratio("client-go") > 2
}

// measure measures an operation, which returns how often it was done.
// Without a preparation it is repeated until there is something to measure.
func measure(f *figures.Figure, all []contender, prepare func(), do func(contender) int) {
	for round := range rounds {
		if prepare != nil {
			prepare()
		}
		for i, c := range all {
			runtime.GC() // collects the garbage of the contender before
			began, times := cpu(), do(c)
			for prepare == nil && cpu()-began < 20*time.Millisecond {
				times += do(c)
			}
			f.Set(contenders[i], round, (cpu()-began).Seconds()/float64(times))
		}
	}
}

// cpu is the CPU time of the process.
func cpu() time.Duration {
	var used syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// print prints a figure, ours first; the others with the ratio of ours to theirs.
func print(f *figures.Figure) {
	fmt.Printf("%9s %-30s %10s", f.Row, f.Measure, f.Unit.Format(f.Value(figures.Ours)))
	for _, peer := range contenders[1:] {
		fmt.Printf("  %s %10s %8s", peer, f.Unit.Format(f.Value(peer)), figures.FormatRatio(f.Ratio(peer)))
	}
	fmt.Println()
}

func median(x []float64) float64 { return figures.Median(x) }

// grown is by how many bytes an object the heap grows.
func grown(n int, build func()) float64 {
	before := heap()
	build()
	return float64(heap()-before) / float64(n)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkWriterBesideLists prints the time of one write, at the median and at the 99th
// percentile, without readers and with one reader that lists everything in a loop.
func BenchmarkWriterBesideLists(b *testing.B) {
	const n, writes = 100_000, 20_000
	for b.Loop() {
		f := newFleet(n)
		fmt.Print("\n| 100,000 objects | idle p50 | idle p99 | with lists p50 | with lists p99 | p99 with lists / idle |\n|---|---|---|---|---|---|\n")
		for _, one := range []struct {
			name string
			contender
		}{{"keepwatch", newOurs(f, 16<<20)}, {"client-go", newIndexer(f)}} {
			var idle, busy []float64
			for range rounds {
				idle = append(idle, latencies(one, f.updates(f.some(writes/rounds)))...)
				stop := lists(one)
				busy = append(busy, latencies(one, f.updates(f.some(writes/rounds)))...)
				stop()
			}
			slices.Sort(idle)
			slices.Sort(busy)
			at := func(x []float64, q float64) time.Duration {
				return time.Duration(x[int(math.Floor(q*float64(len(x))))])
			}
			fmt.Printf("| %s | %v | %v | %v | %v | %.3g× |\n", one.name, at(idle, 0.5), at(idle, 0.99), at(busy, 0.5),
				at(busy, 0.99),
				float64(at(busy, 0.99))/float64(at(idle, 0.99)))
		}
	}
}

// lists begins to list without a pause.
func lists(c contender) (stop func()) {
	var over atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !over.Load() {
			c.listAll()
		}
	}()
	return func() { over.Store(true); <-done }
}

func latencies(c contender, news []keepwatch.Object) []float64 {
	took := make([]float64, len(news))
	for i := range news {
		began := time.Now()
		c.apply(news[i : i+1])
		took[i] = float64(time.Since(began))
	}
	return took
}
