package nats

import "time"

// SetTimeout replaces answerTimeout for the writes of an open sink.
func (s *Sink) SetTimeout(d time.Duration) { s.log.answer = d }
