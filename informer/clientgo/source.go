package clientgo

import (
	"context"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/direct"
	"github.com/keepwatch/keepwatch/informer/internal/follow"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/informer/internal/listwatch"
)

var (
	_ follow.Source = (*lazySource)(nil)
	_ follow.Source = listWatchSource{}
)

// lazySource is the source of a ListerWatcher: the server itself where that is possible,
// else the ListerWatcher. The first request decides.
type lazySource struct {
	lw      cache.ListerWatcher
	example runtime.Object
	name    string
	direct  *reader // nil to use the ListerWatcher
	cached  func(keepwatch.Key) *item.Item
	options direct.Options

	follow.Source // nil before the first request
}

// resolve returns the source to use. Only the reflector's goroutine calls it.
func (s *lazySource) resolve(ctx context.Context) follow.Source {
	if s.Source == nil {
		s.Source = s.decide(ctx)
	}
	return s.Source
}

func (s *lazySource) decide(ctx context.Context) follow.Source {
	if s.direct != nil && decodable(s.example) {
		if r, ok := s.capture(ctx); ok {
			o := s.options
			o.Kind = s.example.GetObjectKind().GroupVersionKind()
			o.Resource, o.Namespace, o.Labels, o.Fields = r.resource, r.namespace, r.labels, r.fields
			if source, err := direct.New(s.direct.config, s.example, o); err == nil {
				source.Cached = s.cached
				return source
			}
		}
	}
	return listWatchSource{listwatch.New(s.lw, s.name)}
}

// decodable reports whether objects like the example can be decoded.
func decodable(example runtime.Object) bool {
	switch example.(type) {
	case nil:
		return false
	case *unstructured.Unstructured:
		return true
	case runtime.Unstructured:
		return false
	}
	_, ok := example.(metav1.Object)
	return ok && reflect.TypeOf(example).Kind() == reflect.Pointer &&
		reflect.TypeOf(example).Elem().Kind() == reflect.Struct
}

func (s *lazySource) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	return s.resolve(ctx).List(ctx, req)
}

func (s *lazySource) StreamList(ctx context.Context, notOlderThan keepwatch.Revision,
	emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	return s.resolve(ctx).StreamList(ctx, notOlderThan, emit)
}

func (s *lazySource) Newest(ctx context.Context) (keepwatch.Revision, error) {
	return s.resolve(ctx).Newest(ctx)
}

func (s *lazySource) Unchanged(ctx context.Context, from, to keepwatch.Revision) error {
	return s.resolve(ctx).Unchanged(ctx, from, to)
}

func (s *lazySource) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	return s.resolve(ctx).Watch(ctx, from)
}

// listWatchSource is a ListerWatcher as a source. Its resource is not known.
type listWatchSource struct{ *listwatch.Source }

func (listWatchSource) Resource() schema.GroupVersionResource { return schema.GroupVersionResource{} }
