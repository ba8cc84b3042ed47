package quotas

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/component-helpers/storage/volume"
)

var (
	claimResource = corev1.Resource("persistentvolumeclaims")
	claimCount    = generic.ObjectCountQuotaResourceNameFor(claimResource)
	claimNames    = []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage}
)

// byClass is between the name of a storage class and a name of claimNames:
// gold.storageclass.storage.k8s.io/requests.storage.
const byClass = ".storageclass.storage.k8s.io/"

func newClaims(list lister) *evaluator {
	return &evaluator{
		resource: claimResource, list: list(claimResource), matching: namesOfClaims, handles: handlesClaim,
		inScope: claimInScope, usage: claimUsage, changes: claimChanges,
	}
}

func namesOfClaims(names []corev1.ResourceName) (matching []corev1.ResourceName) {
	for _, name := range names {
		_, plain, ofClass := strings.Cut(string(name), byClass)
		if name == claimCount || slices.Contains(claimNames, name) || ofClass &&
			slices.Contains(claimNames, corev1.ResourceName(plain)) {
			matching = append(matching, name)
		}
	}
	return matching
}

func handlesClaim(a admission.Attributes) bool {
	switch a.GetSubresource() {
	case "":
		return a.GetOperation() == admission.Create || a.GetOperation() == admission.Update
	case "status":
		claim, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
		old, hasOld := a.GetOldObject().(*corev1.PersistentVolumeClaim)
		return ok && hasOld && claimChanges(old, claim)
	}
	return false
}

func claimUsage(item runtime.Object) (corev1.ResourceList, error) {
	claim, ok := item.(*corev1.PersistentVolumeClaim)
	if !ok {
		return nil, fmt.Errorf("%T is not a claim", item)
	}
	used := corev1.ResourceList{claimCount: count(1), corev1.ResourcePersistentVolumeClaims: count(1)}
	if storage := storageOf(claim); storage != nil {
		used[corev1.ResourceRequestsStorage] = *storage
	}
	if class := volume.GetPersistentVolumeClaimClass(claim); class != "" {
		for _, name := range claimNames {
			if quantity, ok := used[name]; ok {
				used[corev1.ResourceName(class+byClass)+name] = quantity
			}
		}
	}
	return used, nil
}

// storageOf returns the bytes that a claim requests, or those that are allocated if they are more; nil without a
// request.
func storageOf(claim *corev1.PersistentVolumeClaim) *resource.Quantity {
	storage, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return nil
	}
	if allocated, ok := claim.Status.AllocatedResources[corev1.ResourceStorage]; ok && allocated.Cmp(storage) > 0 {
		storage = allocated
	}
	whole := storage.DeepCopy()
	whole.RoundUp(0)
	return &whole
}

func claimInScope(scope corev1.ScopedResourceSelectorRequirement, item runtime.Object) (bool, error) {
	claim, ok := item.(*corev1.PersistentVolumeClaim)
	if !ok {
		return false, fmt.Errorf("%T is not a claim", item)
	}
	if scope.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
		return false, nil
	}
	return selects(scope, attributesClasses(claim)...)
}

// attributesClasses returns the names of VolumeAttributesClasses to which a claim refers, sorted.
func attributesClasses(claim *corev1.PersistentVolumeClaim) (names []string) {
	for _, name := range []*string{claim.Spec.VolumeAttributesClassName, claim.Status.CurrentVolumeAttributesClassName} {
		if name != nil && *name != "" {
			names = append(names, *name)
		}
	}
	if m := claim.Status.ModifyVolumeStatus; m != nil && m.TargetVolumeAttributesClassName != "" {
		names = append(names, m.TargetVolumeAttributesClassName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func claimChanges(before, after runtime.Object) bool {
	old, claim := before.(*corev1.PersistentVolumeClaim), after.(*corev1.PersistentVolumeClaim)
	return !equality.Semantic.DeepEqual(storageOf(old), storageOf(claim)) ||
		!slices.Equal(attributesClasses(old), attributesClasses(claim))
}
