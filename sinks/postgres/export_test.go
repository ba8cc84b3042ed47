package postgres

import "time"

// SetTimeout replaces writeTimeout.
func (s *Sink) SetTimeout(d time.Duration) { s.timeout = d }
