package postgres

import "time"

// SetTimeout replaces writeTimeout.
func (s *Sink) SetTimeout(d time.Duration) { s.timeout = d }

// SetSweep replaces sweepRows.
func (s *Sink) SetSweep(rows int) { s.sweep = rows }
