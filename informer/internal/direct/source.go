// Package direct reads a server over source/kube as a source of an informer: it discovers the
// resource, and decodes the objects. A server without revisions, such as some aggregated APIs,
// is read as client-go's informers read it, by informer/internal/listwatch.
//
//	source.go         Source: discovery, and which of the two reads
//	listerwatcher.go  the ListerWatcher of a server without revisions
package direct

import (
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/follow"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/informer/internal/listwatch"
	"github.com/keepwatch/keepwatch/informer/internal/object"
	"github.com/keepwatch/keepwatch/internal/apiresources"
	"github.com/keepwatch/keepwatch/internal/pings"
	"github.com/keepwatch/keepwatch/source/kube"
)

var _ follow.Source = (*Source)(nil)

// Options select what a source reads, and how.
type Options struct {
	// Resource is the resource that is read. If it is empty, the first request asks the
	// server which resource serves Kind.
	Resource schema.GroupVersionResource
	// Kind is the kind of the objects. It may be empty for objects that carry their kind, if
	// Resource is set.
	Kind           schema.GroupVersionKind
	Namespace      string
	Labels, Fields string // selectors
	// DropManagedFields removes metadata.managedFields.
	DropManagedFields bool
	// Compact caches objects encoded; see object.Options.
	Compact bool
	// Transformed objects are changed in place: they share no memory with others.
	Transformed bool
}

// Source reads a server over source/kube.
type Source struct {
	// Cached returns the informer's cached object of a key, nil if there is none. It must be
	// set before the first request.
	Cached func(keepwatch.Key) *item.Item

	cfg     *rest.Config
	example runtime.Object
	options Options
	reader       // nil until the resource is known
	listed  bool // a page was read: the reader does not change any more
}

// reader reads a known resource.
type reader interface {
	keepwatch.Source
	// ListAt and ResourceVersion: see follow.Source.
	ListAt(ctx context.Context, revision keepwatch.Revision, emit func([]keepwatch.Object) error) error
	ResourceVersion(r keepwatch.Revision) string
}

// versioned reads a server that has revisions.
type versioned struct{ *kube.Source }

// ResourceVersion returns the resource version of a revision: the same number.
func (versioned) ResourceVersion(r keepwatch.Revision) string { return r.String() }

// New returns a source of objects like the example. It does not change cfg, and sends no
// request.
func New(cfg *rest.Config, example runtime.Object, o Options) (*Source, error) {
	d := &Source{cfg: rest.CopyConfig(pings.Config(cfg)), example: example, options: o}
	if o.Resource.Resource == "" {
		return d, nil
	}
	return d, d.open(o.Resource)
}

// open sets the source of a resource.
func (d *Source) open(resource schema.GroupVersionResource) error {
	o := d.options
	codec := object.New(d.example, o.Kind, object.Options{Compact: o.Compact, Transformed: o.Transformed})
	codec.Cached = func(key keepwatch.Key) *item.Item { return d.Cached(key) }
	form := kube.WholeObjects
	if _, ok := d.example.(*metav1.PartialObjectMetadata); ok {
		form = kube.MetadataOnly
	}
	source, err := kube.New(d.cfg, kube.Options{
		Resource: resource, Namespace: o.Namespace, LabelSelector: o.Labels, FieldSelector: o.Fields,
		Representation: form, Decode: codec.Decode, Protobuf: codec.Protobuf(), DropManagedFields: o.DropManagedFields,
	})
	d.options.Resource, d.reader = resource, versioned{source}
	return err
}

// ready discovers the resource once.
func (d *Source) ready(ctx context.Context) error {
	if d.reader != nil {
		return nil
	}
	resource, err := d.discover(ctx)
	if err == nil {
		err = d.open(resource)
	}
	if err != nil {
		return kube.FailureOf("discover the resource of "+d.options.Kind.String(), err)
	}
	return nil
}

// discover asks the server which resource serves the kind.
func (d *Source) discover(ctx context.Context) (schema.GroupVersionResource, error) {
	client, err := discovery.NewDiscoveryClientForConfig(d.cfg)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	served, err := apiresources.On(client).Resources(ctx, d.options.Kind.GroupVersion())
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	for _, r := range served {
		if r.Kind == d.options.Kind.Kind && !strings.Contains(r.Name, "/") {
			return d.options.Kind.GroupVersion().WithResource(r.Name), nil
		}
	}
	return schema.GroupVersionResource{}, apierrors.NewNotFound(schema.GroupResource{Group: d.options.Kind.Group,
		Resource: d.options.Kind.Kind}, "")
}

// Resource returns the resource that is read. It may be called after the first list.
func (d *Source) Resource() schema.GroupVersionResource { return d.options.Resource }

// List discovers the resource if necessary, and lists; see kube.Source. If the first list shows
// that the server has no revisions, the resource is read by a ListerWatcher.
func (d *Source) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	if err := d.ready(ctx); err != nil {
		return keepwatch.Page{}, err
	}
	page, err := d.reader.List(ctx, req)
	if failure, ok := errors.AsType[*keepwatch.Failure](err); ok && failure.Kind == keepwatch.Unversioned && !d.listed {
		lw, failed := d.listerWatcher()
		if failed != nil {
			return keepwatch.Page{}, failure
		}
		d.reader = listwatch.New(lw, d.options.Resource.GroupResource().String())
		page, err = d.reader.List(ctx, req)
	}
	d.listed = d.listed || err == nil
	return page, err
}

// StreamList discovers the resource if necessary, and lists; see kube.Source.
func (d *Source) StreamList(ctx context.Context, notOlderThan keepwatch.Revision,
	emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	if err := d.ready(ctx); err != nil {
		return 0, nil, err
	}
	return d.reader.StreamList(ctx, notOlderThan, emit)
}

// Newest discovers the resource if necessary, and asks for its revision; see kube.Source.
func (d *Source) Newest(ctx context.Context) (keepwatch.Revision, error) {
	if err := d.ready(ctx); err != nil {
		return 0, err
	}
	return d.reader.Newest(ctx)
}

// Unchanged discovers the resource if necessary, and compares it; see kube.Source.
func (d *Source) Unchanged(ctx context.Context, from, to keepwatch.Revision) error {
	if err := d.ready(ctx); err != nil {
		return err
	}
	return d.reader.Unchanged(ctx, from, to)
}

// Watch discovers the resource if necessary, and watches; see kube.Source.
func (d *Source) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	if err := d.ready(ctx); err != nil {
		return nil, err
	}
	return d.reader.Watch(ctx, from)
}
