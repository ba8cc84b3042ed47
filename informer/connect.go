package informer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// connect makes what reads objects like the example, and a name for it. This is
// the one place where an Informer and client-go's clients meet.
func connect(cfg *rest.Config, example runtime.Object, set settings) (cache.ListerWatcher, string, error) {
	if _, err := labels.Parse(set.labels); err != nil {
		return nil, "", fmt.Errorf("label selector %q: %w", set.labels, err)
	}
	if _, err := fields.ParseSelector(set.fields); err != nil {
		return nil, "", fmt.Errorf("field selector %q: %w", set.fields, err)
	}
	cfg = rest.CopyConfig(cfg)
	if cfg.RateLimiter == nil {
		cfg.QPS = -1 // one request at a time, and the server says when to wait
	}
	c := &client{cfg: cfg, settings: set, example: example}
	switch example.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		if set.resource.Resource == "" {
			return nil, "", errors.New("which resource? Say so with informer.Resource")
		}
		return c, set.resource.GroupResource().String(), nil
	}
	kinds, _, err := set.scheme.ObjectKinds(example)
	if err != nil {
		return nil, "", fmt.Errorf("%w; informer.Scheme takes another scheme", err)
	}
	c.kind = kinds[0]
	return c, c.kind.GroupKind().String(), nil
}

// client lists and watches; at its first request it finds out which resource to
// ask for.
type client struct {
	cfg     *rest.Config
	example runtime.Object
	kind    schema.GroupVersionKind // of typed objects
	settings

	mu sync.Mutex
	lw cache.ListerWatcherWithContext
}

func (c *client) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	lw, err := c.ready(ctx)
	if err != nil {
		return nil, err
	}
	c.tweak(&options)
	return lw.ListWithContext(ctx, options)
}

func (c *client) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	lw, err := c.ready(ctx)
	if err != nil {
		return nil, err
	}
	c.tweak(&options)
	return lw.WatchWithContext(ctx, options)
}

func (c *client) List(options metav1.ListOptions) (runtime.Object, error) {
	return c.ListWithContext(context.Background(), options)
}

func (c *client) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return c.WatchWithContext(context.Background(), options)
}

func (c *client) tweak(options *metav1.ListOptions) {
	options.LabelSelector, options.FieldSelector = c.labels, c.fields
}

// ready makes the client for the resource, once.
func (c *client) ready(ctx context.Context) (cache.ListerWatcherWithContext, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lw != nil {
		return c.lw, nil
	}
	resource := c.resource
	if resource.Resource == "" {
		var err error
		if resource, err = c.discover(ctx); err != nil {
			return nil, err
		}
	}
	lw, err := c.dial(resource)
	if err != nil {
		return nil, err
	}
	c.lw = cache.ToListerWatcherWithContext(lw)
	return c.lw, nil
}

// discover asks the server which resource serves the kind.
func (c *client) discover(ctx context.Context) (schema.GroupVersionResource, error) {
	d, err := discovery.NewDiscoveryClientForConfig(c.cfg)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	served, err := d.ServerResourcesForGroupVersionWithContext(ctx, c.kind.GroupVersion().String())
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	for _, r := range served.APIResources {
		if r.Kind == c.kind.Kind && !strings.Contains(r.Name, "/") {
			return c.kind.GroupVersion().WithResource(r.Name), nil
		}
	}
	return schema.GroupVersionResource{}, apierrors.NewNotFound(schema.GroupResource{Group: c.kind.Group, Resource: c.kind.Kind}, "")
}

func (c *client) dial(resource schema.GroupVersionResource) (cache.ListerWatcher, error) {
	switch c.example.(type) {
	case *unstructured.Unstructured:
		objects, err := dynamic.NewForConfig(c.cfg)
		if err != nil {
			return nil, err
		}
		return dynamicListerWatcher(objects, resource, c.namespace, nil), nil
	case *metav1.PartialObjectMetadata:
		objects, err := metadata.NewForConfig(c.cfg)
		if err != nil {
			return nil, err
		}
		in := objects.Resource(resource).Namespace(c.namespace)
		return &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return in.List(ctx, options)
			},
			WatchFuncWithContext: in.Watch,
		}, nil
	}
	return c.dialTyped(resource)
}

// v1 is how the options of lists and watches are spelled in every group.
var v1 = schema.GroupVersion{Version: "v1"}

func (c *client) dialTyped(resource schema.GroupVersionResource) (cache.ListerWatcher, error) {
	cfg := rest.CopyConfig(c.cfg)
	group := resource.GroupVersion()
	cfg.GroupVersion = &group
	cfg.APIPath = "/apis"
	if group.Group == "" {
		cfg.APIPath = "/api"
	}
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(c.scheme).WithoutConversion()
	if _, binary := c.example.(interface{ Marshal() ([]byte, error) }); binary && cfg.ContentType == "" {
		cfg.ContentType = runtime.ContentTypeProtobuf
		cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	objects, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, err
	}
	request := func(options metav1.ListOptions) *rest.Request {
		return objects.Get().NamespaceIfScoped(c.namespace, c.namespace != "").Resource(resource.Resource).
			SpecificallyVersionedParams(&options, clientscheme.ParameterCodec, v1)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := c.scheme.New(c.kind.GroupVersion().WithKind(c.kind.Kind + "List"))
			if err != nil {
				return nil, err
			}
			return list, request(options).Do(ctx).Into(list)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return request(options).Watch(ctx)
		},
	}, nil
}
