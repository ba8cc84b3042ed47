package clientgo

import (
	"time"

	"github.com/keepwatch/keepwatch/informer/internal/direct"
	"github.com/keepwatch/keepwatch/informer/internal/follow"
)

// Option configures the informers of a [Group].
type Option func(*settings)

type settings struct {
	follow follow.Options
	direct *reader // nil to use the ListerWatchers
}

func apply(options []Option) settings {
	s := settings{follow: follow.Options{StartupDeadline: -1}}
	for _, o := range options {
		o(&s)
	}
	return s
}

// source returns the options of a source that reads the server itself.
func (s settings) source() direct.Options {
	return direct.Options{DropManagedFields: s.follow.DropManagedFields, Compact: s.follow.Compact}
}

// DropManagedFields removes metadata.managedFields, which few programs read and which is
// often a third of an object.
func DropManagedFields() Option { return func(s *settings) { s.follow.DropManagedFields = true } }

// Compact caches objects as the server encoded them, and decodes them on access, except the
// most recently used ones. It costs time for each access, and two accesses may return two
// copies. It has an effect on the informers that read the server themselves: see [Direct].
func Compact() Option { return func(s *settings) { s.follow.Compact = true } }

// StartupDeadline sets reflector.Options.StartupDeadline. The default is negative, no limit, as
// in client-go: the permission or the resource may be created after the informer started. An
// informer that ends at the deadline stops, and the group's Check returns the failure.
func StartupDeadline(d time.Duration) Option {
	return func(s *settings) { s.follow.StartupDeadline = d }
}

// CrashOnPanic lets a panic in a handler end the process, as client-go does. By default the
// panic is reported with its stack, and counted.
func CrashOnPanic() Option { return func(s *settings) { s.follow.CrashOnPanic = true } }

// Seed makes the jitter of waits repeatable, for simulations. The default, zero, is a random
// seed.
func Seed(seed uint64) Option { return func(s *settings) { s.follow.Seed = seed } }
