package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/store"
)

// The length and pace of a schedule in virtual time.
const (
	writes       = 40
	writePeriod  = 6 * time.Second
	systemPeriod = 13*time.Second + 101*time.Nanosecond
)

// Outcome is the result of a schedule.
type Outcome struct {
	Seed     uint64 // of the schedule in its campaign
	Style    Style
	Script   Script
	Marks    []Mark
	Problems []Problem
	Events   int // that consumers received
	Virtual  time.Duration
	// Failures counts the reflectors' failures by kind, and Breaches the breaches by fault.
	Failures map[keepwatch.FailureKind]int
	Breaches map[string]int
	// Explained counts the violations that a breach explains.
	Explained int

	trace func() string
}

// Trace returns the schedule as text.
func (o Outcome) Trace() string { return o.trace() }

// Play runs one schedule to its end. It must be called in a synctest bubble. All its
// goroutines end before it returns.
func Play(d *Director, m Mutant) Outcome {
	s := newStage(d, m)
	ctx, cancel := context.WithCancelCause(context.Background())
	var all sync.WaitGroup
	for _, p := range s.processes {
		all.Go(func() { p.run(ctx) })
	}
	for _, c := range s.consumers {
		all.Go(func() { c.run(ctx) })
	}
	all.Go(func() { s.holder.run(ctx) })
	if s.informed != nil {
		all.Go(func() { s.informed.run(ctx) })
	}
	var actors sync.WaitGroup
	actors.Go(s.write)
	actors.Go(s.disturb)
	begin := time.Now()
	actors.Wait()
	d.Calm()
	calm := check.Calm{At: time.Now(), Within: s.convergenceTime()}
	time.Sleep(calm.Within + time.Second)
	for _, p := range s.processes {
		p.conclude()
	}
	cancel(errDrain)
	all.Wait()
	for _, c := range s.judged() {
		c.transcript.Calm, c.transcript.Over = &calm, true
	}
	o := s.outcome()
	o.Virtual = time.Since(begin)
	return o
}

// stage is a running schedule.
type stage struct {
	director  *Director
	settings  Settings
	world     *World
	processes []*process
	consumers []*consumer
	holder    *holder
	informed  *informed // nil for none
}

// judged returns the consumers whose transcripts are judged.
func (s *stage) judged() []*consumer {
	if s.informed == nil {
		return s.consumers
	}
	return append(slices.Clip(s.consumers), s.informed.transcript)
}

func newStage(d *Director, m Mutant) *stage {
	s := &stage{director: d, settings: setup(d), world: NewWorld()}
	s.world.Versions = s.settings.Versions
	for i := range s.settings.Processes {
		name := fmt.Sprintf("p%d", i)
		p := &process{name: name, settings: s.settings, mutant: m, next: make(chan struct{}),
			counts: counts{failures: map[keepwatch.FailureKind]int{}}}
		p.source = &Source{world: s.world, director: d, name: name + "/source", settings: s.settings, asks: true}
		p.source.breaches.detections, p.source.lateRevision = p.detections, p.lateRevision
		s.processes = append(s.processes, p)
	}
	red := store.Filter{Match: Red}
	for i, c := range []*consumer{
		{name: "exact", steady: true},
		{name: "red", filter: red, steady: true},
		{name: "namespace", filter: store.Filter{Namespace: "ns1", Name: s.settings.Name}},
		{name: "wanderer"},
		{name: "red-wanderer", filter: red},
	} {
		c.director, c.world, c.mutant = d, s.world, m
		c.processes = append(slices.Clone(s.processes[i%len(s.processes):]), s.processes[:i%len(s.processes)]...)
		c.phase = time.Duration(1+i) * 13 * time.Microsecond
		s.consumers = append(s.consumers, c)
	}
	s.holder = &holder{director: d, process: s.processes[0], phase: 97 * time.Microsecond}
	if s.settings.Informer != "" {
		s.informed = newInformed(s, m)
	}
	return s
}

// write performs the writer's decisions.
func (s *stage) write() {
	for range writes {
		time.Sleep(writePeriod)
		x := s.director.Decide("writer", AtWrite)
		key := s.settings.Keys[int(x.Arg)%len(s.settings.Keys)]
		color := "red"
		if x.Arg >= 128 {
			color = "blue"
		}
		put, drop := Op{Key: key, Color: color}, Op{Key: key, Delete: true}
		switch x.Choice {
		case "put":
			s.world.Commit([]Op{put})
		case "delete":
			s.world.Commit([]Op{drop})
		case "again":
			s.world.Commit([]Op{drop}, []Op{put})
		case "transaction":
			next := s.settings.Keys[(int(x.Arg)+1)%len(s.settings.Keys)]
			second := Op{Key: next, Color: "red"}
			if s.informed == nil {
				s.world.Commit([]Op{put, second})
			} else { // a Kubernetes API has no transactions
				s.world.Commit([]Op{put}, []Op{second})
			}
		case "foreign":
			s.world.Commit([]Op{})
		case "burst":
			var all [][]Op
			for i := range 3 + int(x.Arg%4) {
				all = append(all, []Op{{Key: s.settings.Keys[(int(x.Arg)+i)%len(s.settings.Keys)], Color: color}})
			}
			s.world.Commit(all...)
		}
	}
}

// disturb performs the decisions of the cluster and of the processes.
func (s *stage) disturb() {
	for range int(writes * writePeriod / systemPeriod) {
		time.Sleep(systemPeriod)
		x := s.director.Decide("system", AtSystem)
		p := s.processes[int(x.Arg/64)%len(s.processes)]
		head, _ := s.world.Head()
		back := head - min(head-1, keepwatch.Revision(1+x.Arg%8))
		switch x.Choice {
		case "compact":
			s.world.Compact(head - min(head, keepwatch.Revision(x.Arg%4)))
		case "compaction-burst":
			s.world.CompactFor(time.Duration(1+x.Arg%60) * time.Second)
		case "drain":
			p.source.drain.begin(time.Duration(1+x.Arg%30) * time.Second)
			p.source.replica.Add(1)
			s.world.Wake()
		case "redefine":
			s.world.Redefine()
		case "replica":
			p.source.replica.Add(1)
		case "pause":
			p.source.gate.pause(time.Duration(1+x.Arg) * time.Second)
		case "restart-empty":
			p.restart(false)
		case "restart-with-store":
			p.restart(true)
		case "silence":
			how := 1 + int32(x.Arg)%int32(silences-1)
			p.source.silence.Store(how)
			if s.informed != nil {
				s.informed.source.silence.Store(how)
			}
			s.world.Wake()
		case "restore":
			s.restore(back, false)
		case "restore-blind":
			s.restore(back, true)
		}
	}
}

// restore restores the source from a backup, if there is one process only. With several, a
// consumer may bring a cursor of an epoch that only another process's store has seen, and
// nothing shows that to a store.
func (s *stage) restore(to keepwatch.Revision, blind bool) {
	if len(s.processes) > 1 {
		return
	}
	p := s.processes[0]
	sources := []*Source{p.source}
	if s.informed != nil {
		sources = append(sources, s.informed.source)
	}
	var names []string
	for _, source := range sources {
		names = append(names, source.name)
	}
	if !s.world.Restore(to, blind, names...) {
		return
	}
	for _, source := range sources {
		if blind {
			source.breaches.add(Breach{Fault: "restore-blind", At: time.Now(), From: to, To: ^keepwatch.Revision(0),
				Undetectable: true})
		}
	}
	p.restored(to, blind)
}

// convergenceTime bounds the time in which the consumers must reach the newest revision after
// the last fault (P11).
func (s *stage) convergenceTime() time.Duration {
	const (
		idle         = 131 * time.Second // the longest idle timeout
		backoffCap   = 30 * time.Second
		retryAfter   = 20 * time.Second  // the longest that the source asks for
		revisionWait = 30 * time.Second  // for a revision that the source does not reach
		slowBackoff  = 300 * time.Second // the cap for failures that a person must fix
		pause        = 256 * time.Second
		drained      = 30 * time.Second
	)
	d := idle + backoffCap + retryAfter + revisionWait + drained + 15*time.Second
	var verified time.Duration
	for _, x := range s.director.Script() {
		switch x.Choice {
		case "forbidden", "absent", "rejected":
			d = max(d, idle+slowBackoff+retryAfter+revisionWait)
		case "restore", "restore-blind":
			verified = max(verified, idle) // two idle watches before the probe
		case "silence":
			verified = 2 * serverTimeout // a watch that has delivered, and a quiet one, repeat a bookmark
		}
	}
	return d + verified + pause
}

// shows reports whether the outcome has a problem of a kind.
func (o Outcome) shows(sign string) bool {
	return slices.ContainsFunc(o.Problems, func(p Problem) bool { return p.Sign == sign })
}
