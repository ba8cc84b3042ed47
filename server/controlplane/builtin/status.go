package builtin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// statusStrategy has the rules of /status, which writes status, and metadata if the kind allows it.
type statusStrategy struct{ strategy }

func (s statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	if spec := part(obj, "Spec"); spec.IsValid() {
		spec.Set(part(old, "Spec"))
	}
	if s.status == strictStatus {
		metav1.ResetObjectMetaForStatus(accessor(obj), accessor(old))
	}
	if s.prepareStatus != nil {
		s.prepareStatus(obj, old)
	}
	accessor(obj).SetGeneration(accessor(old).GetGeneration())
}

// ValidateUpdate also checks the status of a Service's load balancer.
func (s statusStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	errs := s.strategy.ValidateUpdate(ctx, obj, old)
	if service, ok := obj.(*corev1.Service); ok {
		errs = append(errs, validateLoadBalancerStatus(service, old.(*corev1.Service))...)
	}
	return errs
}

func (s statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if s.status == strictStatus {
		return s.reset("spec", "metadata")
	}
	return s.resetPaths(append([]fieldpath.Path{fieldpath.MakePathOrDie("spec")}, s.keptByStatus...)...)
}

// keepDeploymentLabels keeps the labels.
func keepDeploymentLabels(obj, old runtime.Object) {
	accessor(obj).SetLabels(accessor(old).GetLabels())
}

// keepPodStatus keeps the owners, the time of the deletion, and fields that clients of earlier versions leave out. A
// list that is empty and not nil is not left out.
func keepPodStatus(obj, old runtime.Object) {
	accessor(obj).SetDeletionTimestamp(nil) // the library sets the old one
	accessor(obj).SetOwnerReferences(accessor(old).GetOwnerReferences())
	is, was := &obj.(*corev1.Pod).Status, &old.(*corev1.Pod).Status
	fill(&is.QOSClass, was.QOSClass)
	fill(&is.ObservedGeneration, was.ObservedGeneration)
	fill(&is.ExtendedResourceClaimStatus, was.ExtendedResourceClaimStatus)
	if is.ResourceClaimStatuses == nil {
		is.ResourceClaimStatuses = was.ResourceClaimStatuses
	}
	if is.NodeAllocatableResourceClaimStatuses == nil {
		is.NodeAllocatableResourceClaimStatuses = was.NodeAllocatableResourceClaimStatuses
	}
	generations := map[corev1.PodConditionType][]int64{} // validation allows several conditions of one type
	for _, c := range was.Conditions {
		generations[c.Type] = append(generations[c.Type], c.ObservedGeneration)
	}
	for i := range is.Conditions {
		c := &is.Conditions[i]
		if known := generations[c.Type]; len(known) > 0 {
			fill(&c.ObservedGeneration, known[0])
			generations[c.Type] = known[1:]
		}
	}
}

// setPhaseTransition sets the time of the change of a phase, unless the client does, and keeps it otherwise.
func setPhaseTransition(obj, old runtime.Object) {
	is, was := &obj.(*corev1.PersistentVolume).Status, &old.(*corev1.PersistentVolume).Status
	switch {
	case is.Phase == was.Phase && is.LastPhaseTransitionTime == nil:
		is.LastPhaseTransitionTime = was.LastPhaseTransitionTime
	case is.Phase != was.Phase && (is.LastPhaseTransitionTime == nil ||
		is.LastPhaseTransitionTime.Equal(was.LastPhaseTransitionTime)):
		now := metav1.Now()
		is.LastPhaseTransitionTime = &now
	}
}

// subresource serves GET, PUT and PATCH of a whole object by its own strategy.
type subresource struct{ store *genericregistry.Store }

func (r *subresource) New() runtime.Object { return r.store.New() }

// Destroy does nothing: the storage is the main resource's.
func (r *subresource) Destroy() {}

func (r *subresource) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Update changes an existing object; a subresource never creates one.
func (r *subresource) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, info, create, update, false, options)
}

func (r *subresource) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

func (r *subresource) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, object, options)
}
