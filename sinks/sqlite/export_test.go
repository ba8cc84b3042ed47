package sqlite

// SetSweep replaces sweepRows.
func (s *Sink) SetSweep(rows int) { s.sweep = rows }
