package sim

import (
	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Mutant is a bug that a real implementation had, planted around the source, the target or
// the consumers. The zero value is none. The bugs themselves are in test files.
type Mutant struct {
	Name string
	// Seen is the source of the bug.
	Seen string
	// Near are the faults that the bug needs to show, if they are rarely combined. Other
	// faults are excluded then.
	Near []string
	// Rate is the probability of those at a point in percent; 0 means 25.
	Rate int

	Source   func(*Source) keepwatch.Source
	Target   func(keepwatch.Target) keepwatch.Target
	Filter   func(store.Filter) store.Filter
	Cursor   func(store.Cursor, *store.Store) store.Cursor
	Delivery func(keepwatch.Delivery) (keepwatch.Delivery, error)
}

func (m Mutant) source(s *Source) keepwatch.Source {
	if m.Source == nil {
		return s
	}
	return m.Source(s)
}

func (m Mutant) target(t keepwatch.Target) keepwatch.Target {
	if m.Target == nil {
		return t
	}
	return m.Target(t)
}

func (m Mutant) filter(f store.Filter) store.Filter {
	if m.Filter == nil {
		return f
	}
	return m.Filter(f)
}

func (m Mutant) cursor(c store.Cursor, s *store.Store) store.Cursor {
	if m.Cursor == nil {
		return c
	}
	return m.Cursor(c, s)
}

func (m Mutant) delivery(d keepwatch.Delivery, err error) (keepwatch.Delivery, error) {
	if m.Delivery == nil || err != nil {
		return d, err
	}
	return m.Delivery(d)
}
