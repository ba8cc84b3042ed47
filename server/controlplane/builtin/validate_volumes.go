package builtin

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateClaim checks the modes, size, class and source of a PersistentVolumeClaim, or of a StatefulSet's template of
// one.
func validateClaim(at *field.Path, spec *corev1.PersistentVolumeClaimSpec) (errs field.ErrorList) {
	if len(spec.AccessModes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), "at least 1 access mode is required"))
	}
	errs = append(errs, validateAccessModes(at.Child("accessModes"), spec.AccessModes)...)
	if spec.Selector != nil {
		errs = append(errs, validateSelector(at.Child("selector"), spec.Selector)...)
	}
	storage := at.Child("resources").Key(string(corev1.ResourceStorage))
	if size, ok := spec.Resources.Requests[corev1.ResourceStorage]; ok {
		errs = append(errs, positive(storage, size)...)
	} else {
		errs = append(errs, field.Required(storage, ""))
	}
	errs = append(errs, className(at.Child("storageClassName"), spec.StorageClassName)...)
	errs = append(errs, className(at.Child("volumeAttributesClassName"), spec.VolumeAttributesClassName)...)
	errs = append(errs, validateVolumeMode(at.Child("volumeMode"), spec.VolumeMode)...)
	return append(errs, validateSources(at, spec)...)
}

// validateSources checks both fields that name what a claim is filled from.
func validateSources(at *field.Path, spec *corev1.PersistentVolumeClaimSpec) (errs field.ErrorList) {
	source, ref := spec.DataSource, spec.DataSourceRef
	if source != nil {
		errs = append(errs, validateDataSource(at.Child("dataSource"), source.APIGroup, source.Kind, source.Name)...)
	}
	if ref != nil {
		errs = append(errs, validateDataSource(at.Child("dataSourceRef"), ref.APIGroup, ref.Kind, ref.Name)...)
	}
	switch {
	case source == nil || ref == nil:
	case ref.Namespace != nil && *ref.Namespace != "":
		errs = append(errs, field.Invalid(at, at.Child("dataSource"),
			"may not be specified when dataSourceRef.namespace is specified"))
	case !equality.Semantic.DeepEqual(source.APIGroup, ref.APIGroup) || source.Kind != ref.Kind || source.Name != ref.Name:
		errs = append(errs, field.Invalid(at, at.Child("dataSource"), "must match dataSourceRef"))
	}
	return errs
}

func validateAccessModes(at *field.Path, modes []corev1.PersistentVolumeAccessMode) (errs field.ErrorList) {
	for _, mode := range modes {
		errs = append(errs, oneOf(at, mode, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce,
			corev1.ReadWriteOncePod)...)
	}
	others := slices.ContainsFunc(modes, func(m corev1.PersistentVolumeAccessMode) bool {
		return m == corev1.ReadOnlyMany || m == corev1.ReadWriteMany || m == corev1.ReadWriteOnce
	})
	if others && slices.Contains(modes, corev1.ReadWriteOncePod) {
		errs = append(errs, field.Forbidden(at, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

func validateVolumeMode(at *field.Path, mode *corev1.PersistentVolumeMode) field.ErrorList {
	if mode == nil {
		return nil
	}
	return oneOf(at, *mode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
}

// className checks the name of a class. An empty one is that of no class.
func className(at *field.Path, name *string) field.ErrorList {
	if name == nil || *name == "" {
		return nil
	}
	return invalids(at, *name, apivalidation.NameIsDNSSubdomain(*name, false))
}

func positive(at *field.Path, q resource.Quantity) field.ErrorList {
	if q.Sign() > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, q.String(), "must be greater than zero")}
}

// validateDataSource checks what a claim is filled from.
func validateDataSource(at *field.Path, group *string, kind, name string) (errs field.ErrorList) {
	if name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	if kind == "" {
		errs = append(errs, field.Required(at.Child("kind"), ""))
	}
	if group != nil && *group != "" {
		return append(errs, invalids(at.Child("apiGroup"), *group, validation.IsDNS1123Subdomain(*group))...)
	}
	if kind != "PersistentVolumeClaim" {
		errs = append(errs, field.Invalid(at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
	}
	return errs
}

// validateVolume checks the modes, capacity and class of a PersistentVolume, and that it has one source. It does not
// check what is within the source.
func validateVolume(v *corev1.PersistentVolume) (errs field.ErrorList) {
	at, spec := field.NewPath("spec"), &v.Spec
	if len(spec.AccessModes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), ""))
	}
	errs = append(errs, validateAccessModes(at.Child("accessModes"), spec.AccessModes)...)
	if len(spec.Capacity) == 0 {
		errs = append(errs, field.Required(at.Child("capacity"), ""))
	}
	if _, ok := spec.Capacity[corev1.ResourceStorage]; !ok || len(spec.Capacity) > 1 {
		errs = append(errs, field.NotSupported(at.Child("capacity"), spec.Capacity,
			[]corev1.ResourceName{corev1.ResourceStorage}))
	}
	for name, size := range spec.Capacity {
		errs = append(errs, positive(at.Child("capacity").Key(string(name)), size)...)
	}
	if policy := spec.PersistentVolumeReclaimPolicy; policy != "" {
		errs = append(errs, oneOf(at.Child("persistentVolumeReclaimPolicy"), policy,
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle,
			corev1.PersistentVolumeReclaimRetain)...)
	}
	errs = append(errs, className(at.Child("storageClassName"), &spec.StorageClassName)...)
	errs = append(errs, validateVolumeMode(at.Child("volumeMode"), spec.VolumeMode)...)
	if spec.PersistentVolumeSource == (corev1.PersistentVolumeSource{}) {
		errs = append(errs, field.Required(at, "must specify a volume type"))
	}
	if spec.HostPath != nil {
		errs = append(errs, validateHostPath(at.Child("hostPath"), spec.HostPath)...)
	}
	return errs
}

func validateHostPath(at *field.Path, source *corev1.HostPathVolumeSource) (errs field.ErrorList) {
	if source.Path == "" {
		return field.ErrorList{field.Required(at.Child("path"), "")}
	}
	if slices.Contains(strings.Split(source.Path, "/"), "..") {
		errs = append(errs, field.Invalid(at.Child("path"), source.Path, "must not contain '..'"))
	}
	if source.Type != nil {
		errs = append(errs, oneOf(at.Child("type"), *source.Type, corev1.HostPathUnset, corev1.HostPathBlockDev,
			corev1.HostPathCharDev, corev1.HostPathDirectory,
			corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)...)
	}
	return errs
}

// validateStorageClass checks the provisioner, parameters and policies of a StorageClass, and no topologies.
func validateStorageClass(c *storagev1.StorageClass) (errs field.ErrorList) {
	provisioner := field.NewPath("provisioner")
	if c.Provisioner == "" {
		errs = append(errs, field.Required(provisioner, ""))
	} else {
		errs = append(errs, invalids(provisioner, strings.ToLower(c.Provisioner),
			validation.IsQualifiedName(strings.ToLower(c.Provisioner)))...)
	}
	if _, ok := c.Parameters[""]; ok {
		errs = append(errs, field.Invalid(field.NewPath("parameters"), "", "field can not be empty."))
	}
	if policy := c.ReclaimPolicy; policy != nil && *policy != "" {
		errs = append(errs, oneOf(field.NewPath("reclaimPolicy"), *policy, corev1.PersistentVolumeReclaimDelete,
			corev1.PersistentVolumeReclaimRetain)...)
	}
	if mode := c.VolumeBindingMode; mode != nil {
		errs = append(errs, oneOf(field.NewPath("volumeBindingMode"), *mode, storagev1.VolumeBindingImmediate,
			storagev1.VolumeBindingWaitForFirstConsumer)...)
	}
	return errs
}
