package builtin

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// addDeviceDefaults registers the defaults of claims of devices, and of the taints of devices.
func addDeviceDefaults(scheme *runtime.Scheme) {
	byType[resourcev1.ResourceClaim](scheme, func(o *resourcev1.ResourceClaim) {
		defaultDeviceRequests(o.Spec.Devices.Requests)
		if allocation := o.Status.Allocation; allocation != nil {
			for i := range allocation.Devices.Results {
				defaultTolerations(allocation.Devices.Results[i].Tolerations)
			}
		}
	})
	byType[resourcev1.ResourceClaimTemplate](scheme, func(o *resourcev1.ResourceClaimTemplate) {
		defaultDeviceRequests(o.Spec.Spec.Devices.Requests)
	})
	byType[resourcev1.ResourceSlice](scheme, func(o *resourcev1.ResourceSlice) {
		for i := range o.Spec.Devices {
			for j := range o.Spec.Devices[i].Taints {
				taint := &o.Spec.Devices[i].Taints[j]
				if taint.TimeAdded == nil {
					taint.TimeAdded = &metav1.Time{Time: time.Now().Truncate(time.Second)}
				}
			}
		}
	})
}

func defaultDeviceRequests(requests []resourcev1.DeviceRequest) {
	for i := range requests {
		if exactly := requests[i].Exactly; exactly != nil {
			defaultDeviceCount(&exactly.AllocationMode, &exactly.Count)
			defaultTolerations(exactly.Tolerations)
		}
		for j := range requests[i].FirstAvailable {
			alternative := &requests[i].FirstAvailable[j]
			defaultDeviceCount(&alternative.AllocationMode, &alternative.Count)
			defaultTolerations(alternative.Tolerations)
		}
	}
}

// defaultDeviceCount defaults to one device.
func defaultDeviceCount(mode *resourcev1.DeviceAllocationMode, count *int64) {
	fill(mode, resourcev1.DeviceAllocationModeExactCount)
	if *mode == resourcev1.DeviceAllocationModeExactCount {
		fill(count, 1)
	}
}

func defaultTolerations(tolerations []resourcev1.DeviceToleration) {
	for i := range tolerations {
		fill(&tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}
