package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/reflector"
)

// Problem is something that must not be.
type Problem struct {
	// Sign is the same for the same kind of problem: "P6", "unprovoked expired".
	Sign string
	Text string
}

// outcome judges the schedule.
func (s *stage) outcome() Outcome {
	o := Outcome{
		Script: s.director.Taken(), Marks: s.director.Marks(),
		Failures: map[keepwatch.FailureKind]int{}, Lies: map[string]int{},
	}
	history := s.world.History()
	var lies []Lie
	for _, p := range s.processes {
		lies = append(lies, p.source.lies.list()...)
	}
	if s.informed != nil {
		lies = append(lies, s.informed.source.lies.list()...)
		for _, text := range s.informed.problems {
			o.Problems = append(o.Problems, Problem{"informer", text})
		}
	}
	o.trace = func() string { return s.trace(history) }
	for _, c := range s.audience() {
		o.Events += c.events
		for _, at := range c.needless {
			o.Problems = append(o.Problems, Problem{"needless end", fmt.Sprintf("%s: the store ended it at %d, and knew what followed", c.name, at.Revision)})
		}
		for _, v := range check.Judge(history, c.sees, c.transcript) {
			if forgiven(c, v, lies) {
				o.Forgiven++
			} else {
				o.Problems = append(o.Problems, Problem{v.Promise.String(), c.name + ": " + v.String()})
			}
		}
	}
	for _, text := range s.holder.problems {
		o.Problems = append(o.Problems, Problem{"since", text})
	}
	for _, p := range s.processes {
		o.Problems = append(o.Problems, p.problems(o.Script)...)
		for kind, n := range p.counts.failures {
			o.Failures[kind] += n
		}
	}
	for _, l := range lies {
		o.Lies[l.Fault]++
	}
	return o
}

// problems are those that the process itself shows.
func (p *process) problems(script Script) []Problem {
	var all []Problem
	add := func(sign, format string, args ...any) {
		all = append(all, Problem{sign, p.name + ": " + fmt.Sprintf(format, args...)})
	}
	for _, err := range p.counts.ends {
		var f *keepwatch.Failure
		switch {
		case !errors.As(err, &f):
			add("P13", "Run ended without being asked, with %v", err)
		case f.Kind == keepwatch.InvariantViolation:
			add("broken", "%v", err)
		case p.settings.Startup < 0:
			add("P13", "Run gave up with %v: %v", f.Kind, err)
		}
	}
	lies := p.source.lies.list()
	for kind, n := range p.counts.failures {
		lied := kind == keepwatch.ProtocolViolation && len(lies) > 0
		if !lied && !provoked(kind, script, p.settings) {
			add("unprovoked "+kind.String(), "met %d times, and nothing provoked it", n)
		}
	}
	if p.final.State != reflector.Live {
		add("P11", "the reflector is %s at %d long after all has become calm", p.final.State, p.final.Revision)
	}
	for _, l := range lies {
		if seen(l.Fault) && l.Told && !l.Interrupted && !l.Noticed {
			add("unnoticed lie", "%s of (%d, %d] was taken for true", l.Fault, l.From, l.To)
		}
	}
	if len(lies) == 0 && p.counts.dropped > 0 {
		add("unprovoked drop", "%d changes were not taken for news, and all were", p.counts.dropped)
	}
	if p.final.Skipped != p.source.leftOut {
		add("withheld", "%d objects could not be taken of the last list, and the progress tells of %d", p.source.leftOut, p.final.Skipped)
	}
	if p.counts.leftOut < p.final.Skipped {
		add("withheld", "%d objects are left out, and %d were told of", p.final.Skipped, p.counts.leftOut)
	}
	if !p.restore.noticed(p.life.store) {
		add("unnoticed restore", "the source went back, and no gap says so")
	}
	return all
}

// seen reports whether a lie shows in what is told itself.
func seen(fault string) bool {
	return fault == "duplicate" || fault == "reorder" || fault == "lying-bookmark"
}

// provoked reports whether a script has a reason for a kind of failure.
func provoked(kind keepwatch.FailureKind, script Script, s Settings) bool {
	switch kind {
	case keepwatch.Ended:
		return true
	case keepwatch.RevisionTooLarge:
		if s.Lags[1] > time.Second {
			return true
		}
	}
	for _, x := range script {
		if fault(x.Point, x.Choice).Kind == kind || provokes(x.Choice, kind) {
			return true
		}
	}
	return false
}

// provokes reports whether a fault leads to a kind of failure in a roundabout way.
func provokes(choice string, kind keepwatch.FailureKind) bool {
	switch kind {
	case keepwatch.Expired:
		return choice == "compact" || choice == "compaction-burst"
	case keepwatch.Unreachable:
		return choice == "restore" || choice == "restore-blind" || choice == "pause" || choice == "slow"
	case keepwatch.RevisionTooLarge, keepwatch.Rewound, keepwatch.ServerError:
		return choice == "restore" || choice == "restore-blind" || choice == "stale-consistent"
	case keepwatch.Idle:
		return choice == "late" || choice == "absent" || choice == "restore" || choice == "restore-blind" || choice == "replica"
	case keepwatch.StaleReplica:
		return choice == "stale-consistent"
	case keepwatch.StreamingListUnsupported:
		return choice == "restart-kept" // of a store that is void, which takes a paged list only
	}
	return false
}
