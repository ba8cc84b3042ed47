package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/server/internal/worker"
)

// namespaceCleaner completes the deletion of namespaces: it deletes the contents of a terminating
// namespace, waits for their finalizers, and then removes the finalizer of the namespace.
type namespaceCleaner struct {
	client   kubernetes.Interface
	metadata metadata.Interface
	informer cache.SharedIndexInformer
	worker   *worker.Worker[string]
	// custom returns the namespaced custom resources, some of which discovery may not have yet.
	custom func() []schema.GroupVersionResource
}

// The delays before a namespace with remaining contents is cleaned again; they double.
const (
	cleanerMinDelay = 50 * time.Millisecond
	cleanerMaxDelay = 2 * time.Second
)

// errContentRemains means that a namespace has contents with finalizers.
var errContentRemains = errors.New("content remains")

func newNamespaceCleaner(
	client kubernetes.Interface, meta metadata.Interface, namespaces coreinformers.NamespaceInformer,
	custom func() []schema.GroupVersionResource,
) (*namespaceCleaner, error) {
	c := &namespaceCleaner{client: client, metadata: meta, informer: namespaces.Informer(), custom: custom}
	c.worker = worker.New(worker.Options[string]{
		Handle: c.clean, Retrying: reportCleaning, MinDelay: cleanerMinDelay, MaxDelay: cleanerMaxDelay,
	})
	enqueue := func(obj any) {
		if ns, ok := obj.(*corev1.Namespace); ok && ns.DeletionTimestamp != nil {
			c.worker.Add(ns.Name)
		}
	}
	_, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue,
		UpdateFunc: func(old, obj any) {
			// The worker comes back to what remains. The conditions that it writes are no reason to come back earlier.
			was, now := old.(*corev1.Namespace), obj.(*corev1.Namespace)
			if was.DeletionTimestamp == nil || was.UID != now.UID {
				enqueue(now)
			}
		},
	})
	return c, err
}

// run cleans namespaces until ctx is done.
func (c *namespaceCleaner) run(ctx context.Context) { c.worker.Run(ctx) }

// reportCleaning reports an error of a namespace, unless only its contents, or writes of others, have to go first.
func reportCleaning(ctx context.Context, name string, err error) {
	if !errors.Is(err, errContentRemains) && !apierrors.HasStatusCause(err, causeNoSpace) {
		utilruntime.HandleErrorWithContext(ctx, err, "Deletion of a namespace is retried", "namespace", name)
	}
}

// clean deletes the contents of one namespace and removes its finalizer, as far as possible now.
func (c *namespaceCleaner) clean(ctx context.Context, name string) error {
	ns, err := c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return err
	}
	found := c.deleteContent(ctx, name)
	ns = c.describe(ctx, ns, found)
	if err := found.incomplete(); err != nil {
		return err
	}
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool {
		return f == corev1.FinalizerKubernetes
	})
	_, err = c.client.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// describe writes the conditions of a namespace, and returns it as it is stored. A namespace that has nothing to wait
// for gets none.
func (c *namespaceCleaner) describe(ctx context.Context, ns *corev1.Namespace, found content) *corev1.Namespace {
	if found.incomplete() == nil && len(ns.Status.Conditions) == 0 {
		return ns
	}
	described := ns.DeepCopy()
	if !found.describe(&described.Status) {
		return ns
	}
	described, err := c.client.CoreV1().Namespaces().UpdateStatus(ctx, described, metav1.UpdateOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			reportCleaning(ctx, ns.Name, fmt.Errorf("write the conditions: %w", err))
		}
		return ns
	}
	return described
}

// deleteContent deletes every object in a namespace as far as possible now, and returns what remains. Pods are deleted
// first, and as long as one remains, nothing else: what they read and what guards them stays. An error of a resource
// keeps no other resource.
func (c *namespaceCleaner) deleteContent(ctx context.Context, namespace string) content {
	var found content
	resources, err := c.deletable()
	if err != nil {
		found.undiscovered = err
	}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	if slices.Contains(resources, pods) {
		c.deleteResource(ctx, namespace, pods, &found)
		if len(found.remaining) > 0 {
			return found
		}
	}
	for _, resource := range resources {
		if resource != pods {
			c.deleteResource(ctx, namespace, resource, &found)
		}
	}
	return found
}

// deleteResource deletes the objects of one resource in a namespace.
func (c *namespaceCleaner) deleteResource(ctx context.Context, namespace string, resource schema.GroupVersionResource,
	found *content) {
	objects := c.metadata.Resource(resource).Namespace(namespace)
	remaining, err := objects.List(ctx, metav1.ListOptions{})
	if err == nil && len(remaining.Items) > 0 {
		// Nothing waits for a kubelet, which there is only in a simulation. What an object owns in the namespace is deleted
		// anyway: neither waits for the other.
		options := metav1.NewDeleteOptions(0)
		options.PropagationPolicy = new(metav1.DeletePropagationBackground)
		if err = objects.DeleteCollection(ctx, *options, metav1.ListOptions{}); err == nil {
			remaining, err = objects.List(ctx, metav1.ListOptions{})
		}
	}
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err): // the resource itself was just removed
	case err != nil:
		found.failed = append(found.failed, fmt.Errorf("delete %s: %w", resource.Resource, err))
	default:
		found.add(resource, remaining)
	}
}

// deletable lists the namespaced resources that can be deleted as collections. With an error it returns those that were
// found.
func (c *namespaceCleaner) deletable() ([]schema.GroupVersionResource, error) {
	lists, incomplete := discovery.ServerPreferredNamespacedResources(c.client.Discovery())
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "deletecollection"}}, lists)
	byResource, err := discovery.GroupVersionResources(lists)
	incomplete = errors.Join(incomplete, err)
	resources := make([]schema.GroupVersionResource, 0, len(byResource))
	known := map[schema.GroupResource]bool{}
	for resource := range byResource {
		resources = append(resources, resource)
		known[resource.GroupResource()] = true
	}
	for _, resource := range c.custom() {
		if !known[resource.GroupResource()] {
			resources = append(resources, resource)
		}
	}
	return resources, incomplete
}

// namespacedCustomResources returns a served version of each, from the cache by which they are served.
func (c *chain) namespacedCustomResources() []schema.GroupVersionResource {
	definitions, _ := (*c.definitionLister.Load()).List(labels.Everything()) // a list from a cache
	var resources []schema.GroupVersionResource
	for _, d := range definitions {
		served := slices.IndexFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Served
		})
		if d.Spec.Scope == apiextensionsv1.NamespaceScoped && served >= 0 {
			version := d.Spec.Versions[served].Name
			resources = append(resources, schema.GroupVersionResource{Group: d.Spec.Group, Version: version,
				Resource: d.Spec.Names.Plural})
		}
	}
	return resources
}
