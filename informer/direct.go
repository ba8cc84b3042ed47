package informer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/informer/internal/object"
	"github.com/keepwatch/keepwatch/source/kube"
)

// source is the source of an informer. Its objects are *item.Item.
type source interface {
	keepwatch.Source
	// Resource returns the resource that is read, empty if it is not known. It may be called
	// at any time after the first list.
	Resource() schema.GroupVersionResource
	// ResourceVersion returns the server's resource version of a revision that the source
	// returned.
	ResourceVersion(keepwatch.Revision) string
	// ListAt reads the state at exactly one revision; see kube.Source. It may be called at
	// any time after the first list.
	ListAt(ctx context.Context, revision keepwatch.Revision, emit func([]keepwatch.Object) error) error
}

// direct reads a server over source/kube. Unless the resource is configured, its first
// request discovers which resource serves the objects.
type direct struct {
	cfg     *rest.Config
	example runtime.Object
	kind    schema.GroupVersionKind        // empty for objects that carry their kind
	cached  func(keepwatch.Key) *item.Item // the informer's cached object, nil if there is none
	settings
	*kube.Source // nil until the resource is known
}

// connect returns a source of objects like the example, and a name for it.
func connect(cfg *rest.Config, example runtime.Object, set settings) (*direct, string, error) {
	if _, err := labels.Parse(set.labels); err != nil {
		return nil, "", fmt.Errorf("label selector %q: %w", set.labels, err)
	}
	if _, err := fields.ParseSelector(set.fields); err != nil {
		return nil, "", fmt.Errorf("field selector %q: %w", set.fields, err)
	}
	cfg = rest.CopyConfig(cfg)
	if cfg.RateLimiter == nil {
		cfg.QPS = -1 // it sends one request at a time, and obeys Retry-After
	}
	d := &direct{cfg: cfg, example: example, settings: set}
	switch example.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		if set.resource.Resource == "" {
			return nil, "", errors.New("which resource? Say so with informer.Resource")
		}
		return d, set.resource.GroupResource().String(), d.open(set.resource)
	}
	kinds, _, err := set.scheme.ObjectKinds(example)
	if err != nil {
		return nil, "", fmt.Errorf("%w; informer.Scheme takes another scheme", err)
	}
	d.kind = kinds[0]
	if set.resource.Resource != "" {
		err = d.open(set.resource)
	}
	return d, d.kind.GroupKind().String(), err
}

// open sets the source of a resource.
func (d *direct) open(resource schema.GroupVersionResource) error {
	codec := object.New(d.example, d.kind, object.Options{Compact: d.compact, Transformed: d.transform != nil})
	codec.Held = func(key keepwatch.Key) *item.Item { return d.cached(key) }
	form := kube.WholeObjects
	if _, ok := d.example.(*metav1.PartialObjectMetadata); ok {
		form = kube.MetadataOnly
	}
	source, err := kube.New(d.cfg, kube.Options{
		Resource: resource, Namespace: d.namespace, LabelSelector: d.labels, FieldSelector: d.fields,
		Form: form, Decode: codec.Decode, Protobuf: codec.Protobuf(), DropManagedFields: d.dropManaged,
	})
	d.resource, d.Source = resource, source
	return err
}

// ready discovers the resource once.
func (d *direct) ready(ctx context.Context) error {
	if d.Source != nil {
		return nil
	}
	resource, err := d.discover(ctx)
	if err == nil {
		err = d.open(resource)
	}
	if err != nil {
		return kube.FailureOf("find out what serves "+d.kind.String(), err)
	}
	return nil
}

// discover asks the server which resource serves the kind.
func (d *direct) discover(ctx context.Context) (schema.GroupVersionResource, error) {
	client, err := discovery.NewDiscoveryClientForConfig(d.cfg)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	served, err := client.ServerResourcesForGroupVersionWithContext(ctx, d.kind.GroupVersion().String())
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	for _, r := range served.APIResources {
		if r.Kind == d.kind.Kind && !strings.Contains(r.Name, "/") {
			return d.kind.GroupVersion().WithResource(r.Name), nil
		}
	}
	return schema.GroupVersionResource{}, apierrors.NewNotFound(schema.GroupResource{Group: d.kind.Group, Resource: d.kind.Kind}, "")
}

func (d *direct) Resource() schema.GroupVersionResource { return d.resource }

func (d *direct) ResourceVersion(r keepwatch.Revision) string { return r.String() }

func (d *direct) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	if err := d.ready(ctx); err != nil {
		return keepwatch.Page{}, err
	}
	return d.Source.List(ctx, req)
}

func (d *direct) StreamList(ctx context.Context, notOlderThan keepwatch.Revision, emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	if err := d.ready(ctx); err != nil {
		return 0, nil, err
	}
	return d.Source.StreamList(ctx, notOlderThan, emit)
}

func (d *direct) Newest(ctx context.Context) (keepwatch.Revision, error) {
	if err := d.ready(ctx); err != nil {
		return 0, err
	}
	return d.Source.Newest(ctx)
}

func (d *direct) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	if err := d.ready(ctx); err != nil {
		return nil, err
	}
	return d.Source.Watch(ctx, from)
}
