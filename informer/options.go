package informer

import (
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/keepwatch/keepwatch/informer/health"
	"github.com/keepwatch/keepwatch/informer/internal/direct"
	"github.com/keepwatch/keepwatch/informer/internal/follow"
	"github.com/keepwatch/keepwatch/store"
)

// Option configures an [Informer].
type Option func(*settings)

type settings struct {
	follow  follow.Options
	source  direct.Options
	scheme  *runtime.Scheme
	group   *health.Group
	indexes map[string]store.IndexFunc
}

func apply(options []Option) settings {
	s := settings{
		follow:  follow.Options{StartupDeadline: -1, Paged: true, Resync: 1}, // each handler has its own period
		scheme:  clientscheme.Scheme,
		indexes: map[string]store.IndexFunc{},
	}
	for _, o := range options {
		o(&s)
	}
	s.source.DropManagedFields = s.follow.DropManagedFields
	s.source.Compact = s.follow.Compact
	s.source.Transformed = s.follow.Transform != nil
	if s.group == nil {
		s.group = health.NewGroup()
	}
	return s
}

// InGroup adds the informer to a group while it runs: the group reports its health and its
// metrics. A failure that ends Run is returned to the caller of Run; the group does not
// report it.
func InGroup(g *health.Group) Option { return func(s *settings) { s.group = g } }

// Resource sets the resource to read. By default the informer asks the server which
// resource serves the type.
func Resource(r schema.GroupVersionResource) Option {
	return func(s *settings) { s.source.Resource = r }
}

// Namespace selects the objects of one namespace.
func Namespace(namespace string) Option {
	return func(s *settings) { s.source.Namespace = namespace }
}

// Labels selects the objects that a label selector matches, like "app=web,!canary".
func Labels(selector string) Option { return func(s *settings) { s.source.Labels = selector } }

// Fields selects the objects that a field selector matches, like "spec.nodeName=n1". The
// server determines which fields can be selected by.
func Fields(selector string) Option { return func(s *settings) { s.source.Fields = selector } }

// Scheme sets the scheme in which T is registered. The default is client-go's.
func Scheme(scheme *runtime.Scheme) Option { return func(s *settings) { s.scheme = scheme } }

// StartupDeadline sets reflector.Options.StartupDeadline. The default is negative, no limit,
// as in client-go: the permission or the resource may be created after the informer started.
func StartupDeadline(d time.Duration) Option {
	return func(s *settings) { s.follow.StartupDeadline = d }
}

// Seed makes the jitter of waits repeatable, for simulations. The default, zero, is a random
// seed.
func Seed(seed uint64) Option { return func(s *settings) { s.follow.Seed = seed } }

// DropManagedFields removes metadata.managedFields, which few programs read and which is
// often a third of an object.
func DropManagedFields() Option { return func(s *settings) { s.follow.DropManagedFields = true } }

// Compact caches objects as the server encoded them, and decodes them on access, except the
// most recently used ones. It costs time for each access, and two accesses may return two
// copies.
func Compact() Option { return func(s *settings) { s.follow.Compact = true } }

// CrashOnPanic lets a panic in a handler end the process, as client-go does. By default the
// panic is reported with its stack, and counted.
func CrashOnPanic() Option { return func(s *settings) { s.follow.CrashOnPanic = true } }

// Index adds an index to snapshots: see [Snapshot.ByIndex]. values must always return the
// same for the same object. If it panics, this is reported, and the object is missing from
// the index.
func Index[T runtime.Object](name string, values func(T) []string) Option {
	return func(s *settings) {
		s.indexes[name] = follow.IndexFunc(name, func(o any) ([]string, error) { return values(o.(T)), nil })
	}
}

// Transform changes each state of each object once, before any handler or reader receives
// it. If it fails, panics or returns nil for an object, the object is skipped; see
// [health.Status]. Several transforms are applied in order.
func Transform[T runtime.Object](f func(T) (T, error)) Option {
	return func(s *settings) {
		before := s.follow.Transform
		s.follow.Transform = func(value any) (any, error) {
			if before != nil {
				var err error
				if value, err = before(value); err != nil {
					return nil, err
				}
			}
			object, ok := value.(T)
			if !ok {
				return nil, fmt.Errorf("it is for a %v, not for a %T", reflect.TypeFor[T](), value)
			}
			return f(object)
		}
	}
}
