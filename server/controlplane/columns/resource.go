package columns

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var resourceViews = map[schema.GroupResource]view{
	resourcev1.Resource("deviceclasses"): show(
		func(class *resourcev1.DeviceClass) []any { return []any{class.Name, age(class)} },
		nameColumn, ageColumn,
	),
	resourcev1.Resource("resourceclaims"): show(
		func(claim *resourcev1.ResourceClaim) []any { return []any{claim.Name, claimState(claim), age(claim)} },
		nameColumn,
		text("State", "A summary of the current state (allocated, pending, reserved, etc.)."),
		ageColumn,
	),
	resourcev1.Resource("resourceclaimtemplates"): show(
		func(template *resourcev1.ResourceClaimTemplate) []any { return []any{template.Name, age(template)} },
		nameColumn, ageColumn,
	),
	resourcev1.Resource("resourceslices"): show(
		func(slice *resourcev1.ResourceSlice) []any {
			return []any{slice.Name, deref(slice.Spec.NodeName, ""), slice.Spec.Driver, slice.Spec.Pool.Name, age(slice)}
		},
		nameColumn,
		text("Node", described(resourcev1.ResourceSliceSpec{}, "nodeName")),
		text("Driver", described(resourcev1.ResourceSliceSpec{}, "driver")),
		text("Pool", described(resourcev1.ResourcePool{}, "name")),
		ageColumn,
	),
}

// claimState summarizes whether a claim is allocated, reserved for pods, or being deleted.
func claimState(claim *resourcev1.ResourceClaim) string {
	var states []string
	if claim.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	switch {
	case claim.Status.Allocation != nil && len(claim.Status.ReservedFor) > 0:
		states = append(states, "allocated", "reserved")
	case claim.Status.Allocation != nil:
		states = append(states, "allocated")
	case claim.DeletionTimestamp == nil:
		states = append(states, "pending")
	}
	return strings.Join(states, ",")
}
