package operators_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

var (
	widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	configs = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// namespace has the objects of all workloads, and store what some operators make of them.
const (
	namespace = "shop"
	store     = "store"
)

// controller is a small operator of Widgets with client-go's informers: what the seeded ones have in common. What it
// has in memory is lost in a crash.
type controller struct {
	api     dynamic.Interface
	widgets cache.GenericLister // cached
	configs cache.GenericLister // cached
	queue   workqueue.TypedRateLimitingInterface[string]

	mu       sync.Mutex
	remember map[string]string
}

// reconcile brings the world of one Widget, by its name in the namespace, to what it says. w is nil if there is
// none. Fatal errors end the process.
type reconcile func(ctx context.Context, c *controller, name string, w *unstructured.Unstructured) error

// atStart is the name with which a reconcile is called first, without a Widget.
const atStart = "at-start"

// events are handlers besides those that add to the queue.
type events func(ctx context.Context, c *controller) cache.ResourceEventHandler

type fatal struct{ error }

// longestRetry is the longest time after which a reconcile is tried again.
const longestRetry = 50 * time.Millisecond

// start returns a function that runs an operator.
func start(v variant) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		if v.breaks {
			cfg = rest.CopyConfig(cfg)
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &breaker{next: next} })
		}
		api, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return err
		}
		in := metav1.NamespaceAll
		if v.near {
			in = namespace
		}
		informers := dynamicinformer.NewFilteredDynamicSharedInformerFactory(api, 0, in, nil)
		c := &controller{
			api: api, widgets: informers.ForResource(widgets).Lister(), configs: informers.ForResource(configs).Lister(),
			remember: map[string]string{},
			queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](
				5*time.Millisecond, longestRetry)),
		}
		enqueue := func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			object := o.(*unstructured.Unstructured)
			if name := object.GetLabels()["widget"]; object.GetKind() != "Widget" {
				if name != "" {
					c.queue.Add(name)
				}
				return
			}
			c.queue.Add(object.GetName())
		}
		handlers := cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, o any) { enqueue(o) },
			DeleteFunc: enqueue}
		for _, r := range []schema.GroupVersionResource{widgets, configs} {
			if _, err := informers.ForResource(r).Informer().AddEventHandler(handlers); err != nil {
				return err
			}
		}
		if v.also != nil {
			if _, err := informers.ForResource(widgets).Informer().AddEventHandler(v.also(ctx, c)); err != nil {
				return err
			}
		}
		ctx, fail := context.WithCancelCause(ctx)
		cancel := func() { fail(nil) }
		if v.insists {
			err := informers.ForResource(widgets).Informer().SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
				if apierrors.IsNotFound(err) {
					fail(err)
				}
			})
			if err != nil {
				return err
			}
		}
		informers.Start(ctx.Done())
		defer informers.Shutdown()
		defer cancel()
		for resource, synced := range informers.WaitForCacheSync(ctx.Done()) {
			if !synced {
				return fmt.Errorf("%v was not listed", resource)
			}
		}
		defer context.AfterFunc(ctx, c.queue.ShutDown)()
		c.queue.Add(atStart)
		return errors.Join(c.work(ctx, v.do), context.Cause(ctx))
	}
}

func (c *controller) work(ctx context.Context, do reconcile) error {
	for {
		name, stopped := c.queue.Get()
		if stopped {
			return nil
		}
		err := c.reconcile(ctx, name, do)
		c.queue.Done(name)
		if end := (fatal{}); errors.As(err, &end) {
			return end
		}
		if err != nil {
			c.queue.AddRateLimited(name)
		} else {
			c.queue.Forget(name)
		}
	}
}

func (c *controller) reconcile(ctx context.Context, name string, do reconcile) error {
	o, err := c.widgets.ByNamespace(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return do(ctx, c, name, nil)
	}
	if err != nil {
		return err
	}
	return do(ctx, c, name, o.(*unstructured.Unstructured).DeepCopy())
}

func (c *controller) configMaps() dynamic.ResourceInterface {
	return c.api.Resource(configs).Namespace(namespace)
}

func (c *controller) widgetsAPI() dynamic.ResourceInterface {
	return c.api.Resource(widgets).Namespace(namespace)
}

// cachedConfig returns a ConfigMap from the cache, or nil.
func (c *controller) cachedConfig(name string) *unstructured.Unstructured {
	o, err := c.configs.ByNamespace(namespace).Get(name)
	if err != nil {
		return nil
	}
	return o.(*unstructured.Unstructured)
}

// cachedConfigs returns those of a Widget, from the cache.
func (c *controller) cachedConfigs(widget string) int {
	all, err := c.configs.ByNamespace(namespace).List(labels.SelectorFromSet(labels.Set{"widget": widget}))
	if err != nil {
		return 0
	}
	return len(all)
}

func (c *controller) get(key string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remember[key]
}

func (c *controller) set(key, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remember[key] = value
}

// config is a ConfigMap of a Widget, which dies with it.
func config(w *unstructured.Unstructured, name string) *unstructured.Unstructured {
	o := loose(w.GetName(), name)
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Widget", Name: w.GetName(),
		UID: w.GetUID()}})
	return o
}

// sized is a ConfigMap with the size of its Widget.
func sized(w *unstructured.Unstructured) *unstructured.Unstructured {
	o := config(w, w.GetName())
	o.Object["data"] = map[string]any{"size": size(w)}
	return o
}

// loose is a ConfigMap without an owner.
func loose(widget, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	o.SetName(name)
	o.SetLabels(map[string]string{"widget": widget})
	return o
}

func size(w *unstructured.Unstructured) string {
	n, _, _ := unstructured.NestedInt64(w.Object, "spec", "size")
	return fmt.Sprint(n)
}

func status(w *unstructured.Unstructured, field string) string {
	text, _, _ := unstructured.NestedString(w.Object, "status", field)
	return text
}

// setStatus writes a field of the status, unless it has the value.
func (c *controller) setStatus(ctx context.Context, w *unstructured.Unstructured, field, value string) error {
	if status(w, field) == value {
		return nil
	}
	if err := unstructured.SetNestedField(w.Object, value, "status", field); err != nil {
		return err
	}
	_, err := c.widgetsAPI().UpdateStatus(ctx, w, metav1.UpdateOptions{})
	return err
}

// create creates a ConfigMap, unless it exists.
func (c *controller) create(ctx context.Context, o *unstructured.Unstructured) error {
	_, err := c.configMaps().Create(ctx, o, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
