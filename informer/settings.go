package informer

import "time"

// Option shapes a [Group] of informers.
type Option func(*settings)

type settings struct {
	crash           bool
	transform       func(any) (any, error)
	startupDeadline time.Duration
}

// forever is a startup deadline that never comes.
const forever = -1 * time.Second

func settle(options []Option) settings {
	s := settings{startupDeadline: forever}
	for _, o := range options {
		o(&s)
	}
	return s
}

// CrashOnPanic lets a panic in a handler end the process, as client-go does. By
// default it is reported with its stack, counted, and the handler goes on.
func CrashOnPanic() Option { return func(s *settings) { s.crash = true } }
