package postgres

import "time"

// SetTimeout replaces writeTimeout.
func (s *Sink) SetTimeout(d time.Duration) { s.timeout = d }

// StatesQuery returns the SQL of a query for states, and its values.
var StatesQuery = statesQuery

// SetSweep replaces sweepRows.
func (s *Sink) SetSweep(rows int) { s.sweep = rows }

// SetPeaks replaces the number of changes of a resource between peaks.
func (s *Sink) SetPeaks(every int) { s.peaks.Every = every }

// SetFill replaces fillRows.
func (s *Sink) SetFill(rows int) { s.peaks.Rows = rows }

// Filling reports whether the peaks of an earlier version are not complete.
func (s *Sink) Filling() bool { return s.peaks.Filling(time.Now()) != nil }

// SetGroup replaces wholeTime, fewStates and minGroupBytes.
func (s *Sink) SetGroup(whole time.Duration, few, least int) {
	s.grouper.whole, s.grouper.few, s.grouper.least = whole, few, least
}

// MaxSnapshots is maxSnapshots.
const MaxSnapshots = maxSnapshots
