package columns

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Fields that are nil show the default of the API.
var storageViews = map[schema.GroupResource]view{
	storagev1.Resource("storageclasses"): show(
		func(class *storagev1.StorageClass) []any {
			return []any{
				storageClassName(class), class.Provisioner,
				string(deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)),
				string(deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate)),
				deref(class.AllowVolumeExpansion, false), age(class),
			}
		},
		nameColumn,
		text("Provisioner", described(storagev1.StorageClass{}, "provisioner")),
		text("ReclaimPolicy", described(storagev1.StorageClass{}, "reclaimPolicy")),
		text("VolumeBindingMode", described(storagev1.StorageClass{}, "volumeBindingMode")),
		text("AllowVolumeExpansion", described(storagev1.StorageClass{}, "allowVolumeExpansion")),
		ageColumn,
	),
	storagev1.Resource("volumeattachments"): show(
		func(attachment *storagev1.VolumeAttachment) []any {
			spec := attachment.Spec
			return []any{
				attachment.Name, spec.Attacher, deref(spec.Source.PersistentVolumeName, ""), spec.NodeName,
				attachment.Status.Attached, age(attachment),
			}
		},
		nameColumn,
		text("Attacher", described(storagev1.VolumeAttachmentSpec{}, "attacher")),
		text("PV", described(storagev1.VolumeAttachmentSource{}, "persistentVolumeName")),
		text("Node", described(storagev1.VolumeAttachmentSpec{}, "nodeName")),
		boolean("Attached", described(storagev1.VolumeAttachmentStatus{}, "attached")),
		ageColumn,
	),
	storagev1.Resource("csinodes"): show(
		func(node *storagev1.CSINode) []any { return []any{node.Name, int64(len(node.Spec.Drivers)), age(node)} },
		nameColumn,
		integer("Drivers", described(storagev1.CSINodeSpec{}, "drivers")),
		ageColumn,
	),
	storagev1.Resource("csidrivers"): show(csiDriverCells,
		nameColumn,
		boolean("AttachRequired", described(storagev1.CSIDriverSpec{}, "attachRequired")),
		boolean("PodInfoOnMount", described(storagev1.CSIDriverSpec{}, "podInfoOnMount")),
		boolean("StorageCapacity", described(storagev1.CSIDriverSpec{}, "storageCapacity")),
		text("TokenRequests", described(storagev1.CSIDriverSpec{}, "tokenRequests")),
		boolean("RequiresRepublish", described(storagev1.CSIDriverSpec{}, "requiresRepublish")),
		text("Modes", described(storagev1.CSIDriverSpec{}, "volumeLifecycleModes")),
		ageColumn,
	),
	storagev1.Resource("csistoragecapacities"): show(
		func(capacity *storagev1.CSIStorageCapacity) []any {
			free := unset
			if capacity.Capacity != nil {
				free = capacity.Capacity.String()
			}
			return []any{capacity.Name, capacity.StorageClassName, free}
		},
		nameColumn,
		text("StorageClassName", described(storagev1.CSIStorageCapacity{}, "storageClassName")),
		text("Capacity", described(storagev1.CSIStorageCapacity{}, "capacity")),
	),
}

// storageClassName marks the default class.
func storageClassName(class *storagev1.StorageClass) string {
	for _, key := range []string{"storageclass.kubernetes.io/is-default-class",
		"storageclass.beta.kubernetes.io/is-default-class"} {
		if class.Annotations[key] == "true" {
			return class.Name + " (default)"
		}
	}
	return class.Name
}

func csiDriverCells(driver *storagev1.CSIDriver) []any {
	spec := driver.Spec
	audiences, modes := unset, none
	if spec.TokenRequests != nil {
		audiences = joined(spec.TokenRequests, func(request storagev1.TokenRequest) string { return request.Audience })
	}
	if len(spec.VolumeLifecycleModes) > 0 {
		modes = joined(spec.VolumeLifecycleModes, func(mode storagev1.VolumeLifecycleMode) string { return string(mode) })
	}
	return []any{
		driver.Name, deref(spec.AttachRequired, true), deref(spec.PodInfoOnMount, false), deref(spec.StorageCapacity, false),
		audiences, deref(spec.RequiresRepublish, false), modes, age(driver),
	}
}
