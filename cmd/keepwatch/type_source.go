package main

import (
	"context"
	"errors"
	"sync/atomic"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/kube"
)

// typeSource is the source of a type in a version that the server serves. A type may lose the version that it had at the start, and
// have another one: all versions have the same objects and revisions.
type typeSource struct {
	target  *resourceTarget
	options kube.Options // except the version
	groups  rest.Interface
	current atomic.Pointer[kube.Source]
	version string // of current; it belongs to the goroutine of the reflector
}

var _ keepwatch.Source = (*typeSource)(nil)

// newSource returns the source of a target, whose options have no resource and no selection. If the version was named, it stays.
func newSource(t *resourceTarget, options kube.Options) (keepwatch.Source, error) {
	options.Resource, options.Namespace = t.resource, t.namespace
	options.LabelSelector, options.FieldSelector = t.labels, t.fields
	first, err := kube.New(t.config, options)
	if err != nil || t.pinned || t.resource.Group == "" {
		return first, err
	}
	types, err := discovery.NewDiscoveryClientForConfig(t.config)
	if err != nil {
		return nil, err
	}
	s := &typeSource{target: t, options: options, groups: types.RESTClient(), version: t.resource.Version}
	s.current.Store(first)
	return s, nil
}

func (s *typeSource) List(ctx context.Context, r keepwatch.ListRequest) (keepwatch.Page, error) {
	page, err := s.current.Load().List(ctx, r)
	return page, s.checked(ctx, err)
}

func (s *typeSource) StreamList(ctx context.Context, notOlderThan keepwatch.Revision, emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
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

// checked returns an error of the source. After one that says that the server does not serve the type, the next request is for the
// version that the server shows now.
func (s *typeSource) checked(ctx context.Context, err error) error {
	if f, ok := errors.AsType[*keepwatch.Failure](err); !ok || f.Kind != keepwatch.Absent {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	types, _ := typesOf(ctx, s.groups, s.target.resource.Group) // those that are found, whatever else is missing
	for _, t := range types {
		if t.Name == s.target.resource.Resource && t.resource.Version != s.version {
			s.move(t)
		}
	}
	return err
}

func (s *typeSource) move(t groupType) {
	options := s.options
	options.Resource = t.resource
	if next, err := kube.New(s.target.config, options); err == nil {
		s.version = t.resource.Version
		s.current.Store(next)
	}
}
