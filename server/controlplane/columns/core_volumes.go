package columns

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var persistentVolumeView = show(
	func(volume *corev1.PersistentVolume) []any {
		spec := volume.Spec
		capacity, claim := spec.Capacity[corev1.ResourceStorage], ""
		if spec.ClaimRef != nil {
			claim = spec.ClaimRef.Namespace + "/" + spec.ClaimRef.Name
		}
		return []any{
			volume.Name, capacity.String(), accessModes(spec.AccessModes), string(spec.PersistentVolumeReclaimPolicy),
			phaseOf(volume, string(volume.Status.Phase)), claim, storageClassOf(volume, spec.StorageClassName),
			deref(spec.VolumeAttributesClassName, unset), volume.Status.Reason, age(volume),
			string(deref(spec.VolumeMode, unset)),
		}
	},
	nameColumn,
	text("Capacity", described(corev1.PersistentVolumeSpec{}, "capacity")),
	text("Access Modes", described(corev1.PersistentVolumeSpec{}, "accessModes")),
	text("Reclaim Policy", described(corev1.PersistentVolumeSpec{}, "persistentVolumeReclaimPolicy")),
	text("Status", described(corev1.PersistentVolumeStatus{}, "phase")),
	text("Claim", described(corev1.PersistentVolumeSpec{}, "claimRef")),
	text("StorageClass", described(corev1.PersistentVolumeSpec{}, "storageClassName")),
	text("VolumeAttributesClass", described(corev1.PersistentVolumeSpec{}, "volumeAttributesClassName")),
	text("Reason", described(corev1.PersistentVolumeStatus{}, "reason")),
	ageColumn,
	wide(text("VolumeMode", described(corev1.PersistentVolumeSpec{}, "volumeMode"))),
)

var persistentVolumeClaimView = show(
	func(claim *corev1.PersistentVolumeClaim) []any {
		spec := claim.Spec
		capacity, modes := "", ""
		if spec.VolumeName != "" {
			bound := claim.Status.Capacity[corev1.ResourceStorage]
			capacity, modes = bound.String(), accessModes(claim.Status.AccessModes)
		}
		return []any{
			claim.Name, phaseOf(claim, string(claim.Status.Phase)), spec.VolumeName, capacity, modes,
			storageClassOf(claim, deref(spec.StorageClassName, "")), deref(spec.VolumeAttributesClassName, unset), age(claim),
			string(deref(spec.VolumeMode, unset)),
		}
	},
	nameColumn,
	text("Status", described(corev1.PersistentVolumeClaimStatus{}, "phase")),
	text("Volume", described(corev1.PersistentVolumeClaimSpec{}, "volumeName")),
	text("Capacity", described(corev1.PersistentVolumeClaimStatus{}, "capacity")),
	text("Access Modes", described(corev1.PersistentVolumeClaimStatus{}, "accessModes")),
	text("StorageClass", described(corev1.PersistentVolumeClaimSpec{}, "storageClassName")),
	text("VolumeAttributesClass", described(corev1.PersistentVolumeClaimSpec{}, "volumeAttributesClassName")),
	ageColumn,
	wide(text("VolumeMode", described(corev1.PersistentVolumeClaimSpec{}, "volumeMode"))),
)

// phaseOf returns an object's phase, or Terminating once it is being deleted.
func phaseOf(object metav1.Object, phase string) string {
	if object.GetDeletionTimestamp() != nil {
		return "Terminating"
	}
	return phase
}

// storageClassOf returns the storage class, which very old objects name in an annotation.
func storageClassOf(object metav1.Object, class string) string {
	if annotated, ok := object.GetAnnotations()[corev1.BetaStorageClassAnnotation]; ok {
		return annotated
	}
	return class
}

// accessModeOrder is the order and the short form in which access modes are shown.
var accessModeOrder = []struct {
	mode  corev1.PersistentVolumeAccessMode
	short string
}{
	{corev1.ReadWriteOnce, "RWO"},
	{corev1.ReadOnlyMany, "ROX"},
	{corev1.ReadWriteMany, "RWX"},
	{corev1.ReadWriteOncePod, "RWOP"},
}

func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var shown []string
	for _, known := range accessModeOrder {
		if slices.Contains(modes, known.mode) {
			shown = append(shown, known.short)
		}
	}
	return strings.Join(shown, ",")
}
