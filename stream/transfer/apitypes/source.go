package apitypes

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/pings"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/stream"
)

// typeSource is the source of a type in a version that the server serves. A type may lose the version that it had at
// the start, and have another one: all versions have the same objects and revisions.
type typeSource struct {
	config  *rest.Config
	options kube.Options // its Resource has the first version
	groups  rest.Interface
	current atomic.Pointer[kube.Source]
	version string // of current; it belongs to the goroutine of the reflector
}

var (
	_ keepwatch.Source     = (*typeSource)(nil)
	_ stream.DefinedSource = (*typeSource)(nil)
	_ stream.DefinedSource = (*kube.Source)(nil)
)

// NewSource returns the source of options.Resource. After an error that says that the server does not serve the type
// any more, the source continues with another version, if the server shows one; with pinned it stays with that of
// options.
func NewSource(config *rest.Config, options kube.Options, pinned bool) (keepwatch.Source, error) {
	first, err := kube.New(config, options)
	if err != nil || pinned || options.Resource.Group == "" {
		return first, err
	}
	types, err := discovery.NewDiscoveryClientForConfig(pings.Config(config))
	if err != nil {
		return nil, err
	}
	s := &typeSource{config: config, options: options, groups: types.RESTClient(), version: options.Resource.Version}
	s.current.Store(first)
	return s, nil
}

func (s *typeSource) List(ctx context.Context, r keepwatch.ListRequest) (keepwatch.Page, error) {
	page, err := s.current.Load().List(ctx, r)
	return page, s.checked(ctx, err)
}

func (s *typeSource) StreamList(ctx context.Context, notOlderThan keepwatch.Revision,
	emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	revision, watch, err := s.current.Load().StreamList(ctx, notOlderThan, emit)
	return revision, watch, s.checked(ctx, err)
}

func (s *typeSource) Newest(ctx context.Context) (keepwatch.Revision, error) {
	revision, err := s.current.Load().Newest(ctx)
	return revision, s.checked(ctx, err)
}

func (s *typeSource) Unchanged(ctx context.Context, from, to keepwatch.Revision) error {
	return s.checked(ctx, s.current.Load().Unchanged(ctx, from, to))
}

func (s *typeSource) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	watch, err := s.current.Load().Watch(ctx, from)
	return watch, s.checked(ctx, err)
}

// Definition returns the definition that the newest list has shown. See stream.DefinedSource.
func (s *typeSource) Definition() string { return s.current.Load().Definition() }

// SetDefinition sets the definition that has shown the target's state. See stream.DefinedSource.
func (s *typeSource) SetDefinition(definition string) { s.current.Load().SetDefinition(definition) }

// checked returns an error of the source. After one that says that the server does not serve the type, the next request
// is for the version that the server shows now.
func (s *typeSource) checked(ctx context.Context, err error) error {
	if f, ok := errors.AsType[*keepwatch.Failure](err); !ok || f.Kind != keepwatch.Absent {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, typesTimeout)
	defer cancel()
	types, _ := Of(ctx, s.groups, s.options.Resource.Group) // those that are found, whatever else is missing
	for _, t := range types {
		if t.Resource.Resource == s.options.Resource.Resource && t.Resource.Version != s.version {
			s.move(t)
		}
	}
	return err
}

// typesTimeout bounds the requests for the versions of a type.
const typesTimeout = 10 * time.Second

func (s *typeSource) move(t Type) {
	options := s.options
	options.Resource = t.Resource
	if next, err := kube.New(s.config, options); err == nil {
		next.SetDefinition(s.Definition()) // by which the target's objects look: another version shows them in another way
		s.version = t.Resource.Version
		s.current.Store(next)
	}
}
