package simulation

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

var (
	deploymentKind  = appsv1.SchemeGroupVersion.WithKind("Deployment")
	replicaSetKind  = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	statefulSetKind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")
	daemonSetKind   = appsv1.SchemeGroupVersion.WithKind("DaemonSet")
	jobKind         = batchv1.SchemeGroupVersion.WithKind("Job")
)

// The indexes of the caches: by the UID of the controller, or without one by "/" and the namespace; and by the node.
const (
	byController = "controller"
	byNode       = "node"
)

func controllerOf(obj any) ([]string, error) {
	o, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		return []string{string(owner.UID)}, nil
	}
	return []string{"/" + o.GetNamespace()}, nil
}

func nodeOf(obj any) ([]string, error) { return []string{obj.(*corev1.Pod).Spec.NodeName}, nil }

// indexed returns the objects of an index, by their names.
func (c *Cluster) indexed(from *followed, index, value string) []metav1.Object {
	found, err := from.GetIndexer().ByIndex(index, value)
	if err != nil {
		panic(err) // the index exists: see New
	}
	objects := make([]metav1.Object, len(found))
	for i, o := range found {
		objects[i] = o.(metav1.Object)
	}
	slices.SortFunc(objects, func(a, b metav1.Object) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return objects
}

// listed returns the objects of a namespace.
func listed[T any](from *followed, namespace string) []T {
	found, err := from.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		panic(err) // every informer of a factory has the index
	}
	objects := make([]T, len(found))
	for i, o := range found {
		objects[i] = o.(T)
	}
	return objects
}

// selects reports whether a selector of workloads selects an object. Neither an invalid nor an empty one selects any.
func selects(selector *metav1.LabelSelector, o metav1.Object) bool {
	s, ok := valid(selector)
	return ok && s.Matches(labels.Set(o.GetLabels()))
}

// valid returns a selector. It reports false if the selector is invalid or selects everything.
func valid(selector *metav1.LabelSelector) (labels.Selector, bool) {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return s, err == nil && !s.Empty()
}

// owner is an object that controls others, which its selector selects.
type owner struct {
	metav1.Object
	kind     schema.GroupVersionKind
	selector labels.Selector
	// live reads the owner from the server.
	live func(context.Context) (metav1.Object, error)
}

func (o owner) reference() metav1.OwnerReference { return *metav1.NewControllerRef(o.Object, o.kind) }

// claimed returns the objects that an owner controls. It adopts those without a controller that the selector selects,
// and releases those that it no longer selects, by patches.
func (c *Cluster) claimed(ctx context.Context, from *followed, o owner, patch func(name string,
	patch []byte) (metav1.Object, error)) ([]metav1.Object, error) {
	var all []metav1.Object
	for _, object := range c.indexed(from, byController, string(o.GetUID())) {
		if o.GetDeletionTimestamp() != nil || object.GetDeletionTimestamp() != nil ||
			o.selector.Matches(labels.Set(object.GetLabels())) {
			all = append(all, object)
			continue
		}
		released, err := patch(object.GetName(), ownerPatch(object, map[string]any{"$patch": "delete", "uid": o.GetUID()}))
		if err != nil {
			return nil, err
		}
		from.await(ctx, released)
	}
	if o.GetDeletionTimestamp() != nil {
		return all, nil
	}
	alive := false
	for _, orphan := range c.indexed(from, byController, "/"+o.GetNamespace()) {
		if orphan.GetDeletionTimestamp() != nil || !o.selector.Matches(labels.Set(orphan.GetLabels())) {
			continue
		}
		if !alive { // the cache may be late, and an owner that is deleted must not adopt what its deletion orphaned
			if now, err := o.live(ctx); err != nil || now.GetUID() != o.GetUID() || now.GetDeletionTimestamp() != nil {
				return all, err
			}
			alive = true
		}
		adopted, err := patch(orphan.GetName(), ownerPatch(orphan, o.reference()))
		if err != nil {
			return nil, err
		}
		from.await(ctx, adopted)
		all = append(all, adopted)
	}
	return all, nil
}

// ownerPatch returns a strategic merge patch of an object's owners.
func ownerPatch(of metav1.Object, reference any) []byte {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": of.GetUID(),
		"ownerReferences": []any{reference}}})
	if err != nil {
		panic(err) // references have only encodable fields
	}
	return patch
}

// podsFor returns the pods of an owner.
func (c *Cluster) podsFor(ctx context.Context, o owner) ([]*corev1.Pod, error) {
	found, err := c.claimed(ctx, c.pods, o, func(name string, patch []byte) (metav1.Object, error) {
		return c.client.CoreV1().Pods(o.GetNamespace()).Patch(ctx, name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{})
	})
	pods := make([]*corev1.Pod, len(found))
	for i, pod := range found {
		pods[i] = pod.(*corev1.Pod)
	}
	return pods, err
}
