package sinktest

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/fleet"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// pod is a pod of a large cluster in one state.
type pod struct {
	name     string
	revision keepwatch.Revision
	json     []byte
}

func (p *pod) Key() keepwatch.Key           { return keepwatch.Key{Namespace: "bench", Name: p.name} }
func (p *pod) UID() keepwatch.UID           { return keepwatch.UID(p.name) }
func (p *pod) Revision() keepwatch.Revision { return p.revision }
func (p *pod) JSON() []byte                 { return p.json }
func (p *pod) Metadata() []byte             { return nil }

const (
	listPage    = 500 // objects of a page
	batchEvents = 100 // of a busy watch
	distinct    = 200 // bodies
)

// Benchmark writes the pods of a large cluster: b.N times a first list of so many objects into the sink that
// open returns, and then as many changes. It reports objects and changes per second.
func Benchmark(b *testing.B, objects int, open func() sink.Sink) {
	var bodies [][]byte
	size := 0
	for i := range distinct {
		text, err := json.Marshal(fleet.Pod(i))
		if err != nil {
			b.Fatal(err)
		}
		bodies = append(bodies, text)
		size += len(text)
	}
	var listing, changing spent
	for b.Loop() {
		s := open()
		if _, err := s.Open(b.Context(), Streams()); err != nil {
			b.Fatal(err)
		}
		w := &benchmark{b: b, sink: s, bodies: bodies}
		listing.add(func() { w.write(objects, listPage, keepwatch.Added) })
		changing.add(func() { w.write(objects, batchEvents, keepwatch.Modified) })
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	n := float64(b.N * objects)
	b.ReportMetric(n/listing.wall.Seconds(), "objects/s")
	b.ReportMetric(n/changing.wall.Seconds(), "changes/s")
	b.ReportMetric(float64(listing.cpu.Microseconds())/n, "CPU-µs/object")
	b.ReportMetric(float64(changing.cpu.Microseconds())/n, "CPU-µs/change")
	b.ReportMetric(float64(size)/distinct, "bytes/object")
	b.ReportMetric(0, "ns/op")
}

// spent is the time that the work of a benchmark took, and the processor time of this process.
type spent struct{ wall, cpu time.Duration }

func (s *spent) add(work func()) {
	wall, cpu := time.Now(), processorTime()
	work()
	s.wall += time.Since(wall)
	s.cpu += processorTime() - cpu
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type benchmark struct {
	b        *testing.B
	sink     sink.Sink
	bodies   [][]byte
	revision keepwatch.Revision
	count    uint64
}

// write writes one event for each object.
func (w *benchmark) write(objects, perBatch int, kind keepwatch.ChangeType) {
	for from := 0; from < objects; from += perBatch {
		var p stream.Piece
		for i := from; i < min(from+perBatch, objects); i++ {
			w.revision++
			o := &pod{fmt.Sprint("pod-", i), w.revision, w.bodies[i%distinct]}
			p.Messages = append(p.Messages, stream.Event{Type: kind, Revision: w.revision, Object: o})
			if kind == keepwatch.Added {
				w.count++
			}
		}
		p.Cursor, p.Count, p.Position = w.revision, w.count, []byte(`{}`)
		batch := sink.Batch{Time: time.Now().UTC().Truncate(time.Millisecond),
			Pieces: []sink.Piece{{Piece: p, After: sink.Progress{Cursor: w.revision}}}}
		if err := w.sink.Write(w.b.Context(), batch); err != nil {
			w.b.Fatal(err)
		}
	}
}
