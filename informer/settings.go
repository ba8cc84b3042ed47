package informer

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/store"
)

// Option shapes an [Informer] or a [Group]. What to read, and how to find it, is of no
// meaning to a group, whose informers are told so in client-go's ways.
type Option func(*settings)

type settings struct {
	crash bool
	group *Group

	direct      *rest.Config // nil to use ListerWatchers as they are
	dropManaged bool
	compact     bool

	resource        schema.GroupVersionResource // empty: whatever serves the type
	namespace       string
	labels, fields  string
	scheme          *runtime.Scheme
	startupDeadline time.Duration
	seed            uint64
	// paged lists the first time as later, too: pages cost a server half of what a
	// stream does, and us three quarters.
	paged     bool
	transform func(any) (any, error)
	indexes   map[string]store.IndexFunc
}

// forever is a startup deadline that never comes.
const forever = -1 * time.Second

func settle(options []Option) settings {
	s := settings{startupDeadline: forever, scheme: clientscheme.Scheme, indexes: map[string]store.IndexFunc{}}
	for _, o := range options {
		o(&s)
	}
	return s
}

// CrashOnPanic lets a panic in a handler end the process, as client-go does. By
// default it is reported with its stack, and counted.
func CrashOnPanic() Option { return func(s *settings) { s.crash = true } }

// InGroup makes an informer a member of a group, which watches over its health.
func InGroup(g *Group) Option { return func(s *settings) { s.group = g } }

// Resource says which resource to read. By default the server is asked which one
// serves the type.
func Resource(r schema.GroupVersionResource) Option {
	return func(s *settings) { s.resource = r }
}

// Namespace leaves the objects of one namespace.
func Namespace(namespace string) Option { return func(s *settings) { s.namespace = namespace } }

// Labels leaves the objects that a label selector matches, like "app=web,!canary".
func Labels(selector string) Option { return func(s *settings) { s.labels = selector } }

// Fields leaves the objects that a field selector matches, like "spec.nodeName=n1".
// The server knows which fields can be selected by.
func Fields(selector string) Option { return func(s *settings) { s.fields = selector } }

// Scheme is where T is registered, instead of client-go's scheme.
func Scheme(scheme *runtime.Scheme) Option { return func(s *settings) { s.scheme = scheme } }

// StartupDeadline ends Run with the failure if, so long after its start, the server
// still does not allow or know what is asked for. Zero ends it at the first refusal;
// without the option it waits for ever.
func StartupDeadline(d time.Duration) Option { return func(s *settings) { s.startupDeadline = d } }

// Seed makes the jitter of waits repeat, for simulations; by default, and with zero, it
// is random.
func Seed(seed uint64) Option { return func(s *settings) { s.seed = seed } }

// DropManagedFields leaves out metadata.managedFields, which few programs look at and
// which is often a third of an object.
func DropManagedFields() Option { return func(s *settings) { s.dropManaged = true } }

// Compact keeps objects as they came from the server, encoded, and decodes them when
// they are asked for, but for the few that were asked for last. It costs time
// for each access, and two accesses may give two copies. In a group it concerns the
// informers that read the server themselves; see [Direct].
func Compact() Option { return func(s *settings) { s.compact = true } }

// Index lets snapshots find objects by the values that a function gives them: see
// [Snapshot.ByIndex]. The function must answer the same for the same object, always. If
// it panics, that is reported, and the object is missing from the index.
func Index[T runtime.Object](name string, values func(T) []string) Option {
	return func(s *settings) {
		s.indexes[name] = indexFunc(name, func(o any) ([]string, error) { return values(o.(T)), nil })
	}
}
