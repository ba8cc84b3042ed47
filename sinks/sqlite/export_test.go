package sqlite

import "time"

// SetSweep replaces sweepRows.
func (s *Sink) SetSweep(rows int) { s.sweep = rows }

// SetCompress replaces wholeTime and minCompressed.
func (s *Sink) SetCompress(whole time.Duration, least int) { s.whole, s.least = whole, least }
