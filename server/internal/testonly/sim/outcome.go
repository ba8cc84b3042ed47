package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/reflector"
)

// Problem is a result that a schedule must not have.
type Problem struct {
	// Sign is the kind of the problem: "P6", "unprovoked expired".
	Sign string
	Text string
}

// outcome judges the schedule.
func (s *stage) outcome() Outcome {
	o := Outcome{
		Script: s.director.Script(), Marks: s.director.Marks(),
		Failures: map[keepwatch.FailureKind]int{}, Breaches: map[string]int{},
	}
	history := s.world.History()
	var breaches []Breach
	for _, p := range s.processes {
		breaches = append(breaches, p.source.breaches.list()...)
	}
	if s.informed != nil {
		breaches = append(breaches, s.informed.source.breaches.list()...)
		for _, text := range s.informed.problems {
			o.Problems = append(o.Problems, Problem{"informer", text})
		}
	}
	o.trace = func() string { return s.trace(history) }
	for _, c := range s.judged() {
		o.Events += c.events
		if wrong := c.wrongDefinitions(); len(wrong) > 0 {
			o.Problems = append(o.Problems, Problem{"definition", fmt.Sprintf("%s: it has not received another content: %v",
				c.name, wrong)})
		}
		for _, at := range c.needlessEnds {
			o.Problems = append(o.Problems, Problem{"needless end",
				fmt.Sprintf("%s: the store ended it at %d, but knew the changes after", c.name, at.Revision)})
		}
		for _, v := range check.Judge(history, c.matches, c.transcript) {
			if explained(c, v, breaches) {
				o.Explained++
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
	for _, l := range breaches {
		o.Breaches[l.Fault]++
	}
	return o
}

// problems returns the problems of the process itself.
func (p *process) problems(script Script) []Problem {
	var all []Problem
	add := func(sign, format string, args ...any) {
		all = append(all, Problem{sign, p.name + ": " + fmt.Sprintf(format, args...)})
	}
	for _, err := range p.counts.ends {
		var f *keepwatch.Failure
		switch {
		case !errors.As(err, &f):
			add("P13", "Run ended by itself with %v", err)
		case f.Kind == keepwatch.InvariantViolation:
			add("invariant violation", "%v", err)
		case p.settings.Startup < 0:
			add("P13", "Run ended with %v: %v", f.Kind, err)
		}
	}
	if wrong := p.wrongDefinitions(); len(wrong) > 0 {
		add("definition", "a list has shown another content than %v", wrong)
	}
	breaches := p.source.breaches.list()
	for kind, n := range p.counts.failures {
		breached := kind == keepwatch.ProtocolViolation && len(breaches) > 0
		if !breached && !provoked(kind, script, p.settings) {
			add("unprovoked "+kind.String(), "%d times, without a cause", n)
		}
	}
	silenced := p.source.silence.Load() > 0 && (p.final.State == reflector.Stale || p.final.State == reflector.Stalled)
	// Stalled watches are silent, too. That later ones are not only a change behind the last list shows.
	unproven := p.final.State == reflector.Stale && p.source.world.lastChange().Before(p.counts.relisted)
	if p.final.State != reflector.Live && !silenced && !unproven {
		add("P11", "the reflector is %s at %d long after the last fault", p.final.State, p.final.Revision)
	}
	for _, l := range breaches {
		if detectable(l.Fault) && l.Delivered && !l.Interrupted && !l.Detected {
			add("undetected breach", "%s of (%d, %d] was accepted", l.Fault, l.From, l.To)
		}
	}
	if len(breaches) == 0 && p.counts.dropped > 0 {
		add("unprovoked drop", "%d changes were dropped, but all were new", p.counts.dropped)
	}
	if p.final.Skipped != p.source.skipped {
		add("skipped", "the last list skipped %d objects, the progress has %d", p.source.skipped, p.final.Skipped)
	}
	if p.counts.skipped < p.final.Skipped {
		add("skipped", "%d objects were skipped, %d were reported", p.final.Skipped, p.counts.skipped)
	}
	if !p.restore.noticed(p.incarnation.store) {
		add("unnoticed restore", "the source was rewound, but no gap shows it")
	}
	return all
}

// detectable reports whether a breach can be detected by its deliveries alone.
func detectable(fault string) bool {
	return fault == "duplicate" || fault == "reorder" || fault == "lying-bookmark"
}

// provoked reports whether a script has a cause for a kind of failure.
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

// provokes reports whether a fault causes a kind of failure indirectly.
func provokes(choice string, kind keepwatch.FailureKind) bool {
	switch kind {
	case keepwatch.Expired:
		return choice == "compact" || choice == "compaction-burst"
	case keepwatch.Unreachable:
		return choice == "restore" || choice == "restore-blind" || choice == "pause" || choice == "slow" ||
			choice == "silence"
	case keepwatch.RevisionTooLarge, keepwatch.StaleReplica, keepwatch.Rewound, keepwatch.ServerError:
		return choice == "restore" || choice == "restore-blind" || choice == "stale-consistent"
	case keepwatch.Idle:
		return choice == "late" || choice == "absent" || choice == "restore" || choice == "restore-blind" ||
			choice == "replica" ||
			choice == "silence"
	case keepwatch.Silent:
		return choice == "stall" || choice == "late" || choice == "absent" || choice == "replica" || choice == "pause" ||
			choice == "slow"
	case keepwatch.StreamingListUnsupported:
		return choice == "restart-with-store" // of an invalidated store, which accepts a paged list only
	}
	return false
}
