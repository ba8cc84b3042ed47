package builtin

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/services"
)

// immutableFields lists the fields that no update may change, by resource. Paths consist
// of JSON names. Fields that may be changed under a condition are in immutableRules.
var immutableFields = map[string][]string{
	"secrets":          {"type"},
	"deployments.apps": {"spec.selector"},
	"replicasets.apps": {"spec.selector"},
	"statefulsets.apps": {"spec.selector", "spec.volumeClaimTemplates", "spec.serviceName",
		"spec.podManagementPolicy"},
	"daemonsets.apps":          {"spec.selector"},
	"controllerrevisions.apps": {"data"},
	"jobs.batch": {"spec.selector", "spec.completionMode", "spec.podFailurePolicy", "spec.backoffLimitPerIndex",
		"spec.managedBy", "spec.successPolicy"},
	"rolebindings.rbac.authorization.k8s.io":        {"roleRef"},
	"clusterrolebindings.rbac.authorization.k8s.io": {"roleRef"},
	"ingressclasses.networking.k8s.io":              {"spec.controller"},
	"storageclasses.storage.k8s.io": {"provisioner", "parameters", "reclaimPolicy",
		"volumeBindingMode"},
	"volumeattachments.storage.k8s.io":                 {"spec"},
	"csidrivers.storage.k8s.io":                        {"spec.volumeLifecycleModes"},
	"csistoragecapacities.storage.k8s.io":              {"nodeTopology", "storageClassName"},
	"priorityclasses.scheduling.k8s.io":                {"preemptionPolicy"},
	"endpointslices.discovery.k8s.io":                  {"addressType"},
	"resourceclaims.resource.k8s.io":                   {"spec"},
	"resourceclaimtemplates.resource.k8s.io":           {"spec"},
	"resourceslices.resource.k8s.io":                   {"spec.pool.name", "spec.driver", "spec.nodeName"},
	"runtimeclasses.node.k8s.io":                       {"handler"},
	"storageversionmigrations.storagemigration.k8s.io": {"spec"},
}

// immutableRules has the rules with a condition, by resource.
var immutableRules = map[string]func(obj, old runtime.Object) field.ErrorList{
	"secrets": func(obj, old runtime.Object) field.ErrorList {
		s, before := obj.(*corev1.Secret), old.(*corev1.Secret)
		return immutableFlag(before.Immutable, s.Immutable, change{"data", s.Data, before.Data})
	},
	"configmaps": func(obj, old runtime.Object) field.ErrorList {
		c, before := obj.(*corev1.ConfigMap), old.(*corev1.ConfigMap)
		return immutableFlag(before.Immutable, c.Immutable, change{"data", c.Data, before.Data},
			change{"binaryData", c.BinaryData, before.BinaryData})
	},
	"pods":                   podUpdate,
	"services":               serviceUpdate,
	"persistentvolumes":      persistentVolumeUpdate,
	"persistentvolumeclaims": persistentVolumeClaimUpdate,
	"resourcequotas":         quotaUpdate,
	"jobs.batch":             jobUpdate,
	"csidrivers.storage.k8s.io": func(obj, old runtime.Object) field.ErrorList {
		return validation.ValidateImmutableField(obj.(*storagev1.CSIDriver).Spec.AttachRequired,
			old.(*storagev1.CSIDriver).Spec.AttachRequired, field.NewPath("spec", "attachedRequired")) // sic
	},
	"priorityclasses.scheduling.k8s.io": func(obj, old runtime.Object) field.ErrorList {
		if obj.(*schedulingv1.PriorityClass).Value == old.(*schedulingv1.PriorityClass).Value {
			return nil
		}
		return field.ErrorList{field.Forbidden(field.NewPath("value"), "may not be changed in an update.")}
	},
}

// immutable returns an error for each immutable field that an update changes, with the messages of
// kube-apiserver.
func (k *kind) immutable(obj, old runtime.Object) (errs field.ErrorList) {
	name := k.groupResource().String()
	for _, path := range immutableFields[name] {
		names := strings.Split(path, ".")
		at := field.NewPath(names[0], names[1:]...)
		errs = append(errs, validation.ValidateImmutableField(valueAt(obj, names), valueAt(old, names), at)...)
	}
	if rule := immutableRules[name]; rule != nil {
		errs = append(errs, rule(obj, old)...)
	}
	return errs
}

// valueAt returns the value of a field, by its JSON names.
func valueAt(obj runtime.Object, names []string) any {
	v := reflect.ValueOf(obj).Elem()
	for _, name := range names {
		v = v.FieldByNameFunc(func(goName string) bool {
			f, _ := v.Type().FieldByName(goName)
			json, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return json == name
		})
	}
	return v.Interface()
}

// change is the name of a field with its old and new values.
type change struct {
	name    string
	is, was any
}

// immutableFlag returns errors for changes of an object whose field immutable is true.
func immutableFlag(was, is *bool, contents ...change) (errs field.ErrorList) {
	if was == nil || !*was {
		return nil
	}
	const detail = "field is immutable when `immutable` is set"
	if is == nil || !*is {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), detail))
	}
	for _, c := range contents {
		if !equality.Semantic.DeepEqual(c.is, c.was) {
			errs = append(errs, field.Forbidden(field.NewPath(c.name), detail))
		}
	}
	return errs
}

// serviceUpdate returns errors for changes of addresses and of the load balancer's class.
func serviceUpdate(obj, old runtime.Object) field.ErrorList {
	is, was := obj.(*corev1.Service), old.(*corev1.Service)
	errs := services.ValidateUpdate(is, was)
	if is.Spec.Type == corev1.ServiceTypeLoadBalancer && was.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		!equality.Semantic.DeepEqual(is.Spec.LoadBalancerClass, was.Spec.LoadBalancerClass) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "loadBalancerClass"), is.Spec.LoadBalancerClass,
			"may not change once set"))
	}
	return errs
}

// stableLabels are the names of the labels of nodes that had others before.
var stableLabels = map[string]string{
	corev1.LabelFailureDomainBetaZone: corev1.LabelTopologyZone, corev1.LabelInstanceType: corev1.LabelInstanceTypeStable,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	"beta.kubernetes.io/os":             corev1.LabelOSStable, "beta.kubernetes.io/arch": corev1.LabelArchStable,
}

// persistentVolumeUpdate allows the secret for expansions to be set, and the affinity to nodes to get stable labels.
func persistentVolumeUpdate(obj, old runtime.Object) (errs field.ErrorList) {
	is, was := &obj.(*corev1.PersistentVolume).Spec, &old.(*corev1.PersistentVolume).Spec
	source := is.PersistentVolumeSource
	if source.CSI != nil && was.CSI != nil && was.CSI.ControllerExpandSecretRef == nil {
		csi := *source.CSI
		source.CSI, csi.ControllerExpandSecretRef = &csi, nil
	}
	if !equality.Semantic.DeepEqual(source, was.PersistentVolumeSource) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "persistentvolumesource"),
			fmt.Sprintf("spec.persistentvolumesource is immutable after creation\n%v",
				diff.Diff(was.PersistentVolumeSource, source))))
	}
	errs = append(errs, validation.ValidateImmutableField(is.VolumeMode, was.VolumeMode, field.NewPath("volumeMode"))...)
	equal := equality.Semantic.Copy()
	utilruntime.Must(equal.AddFunc(func(is, was corev1.NodeSelectorRequirement) bool {
		if stable, ok := stableLabels[was.Key]; ok && is.Key == stable {
			was.Key = stable
		}
		return equality.Semantic.DeepEqual(is, was)
	}))
	if was.NodeAffinity != nil && !equal.DeepEqual(is.NodeAffinity, was.NodeAffinity) {
		errs = append(errs, field.Invalid(field.NewPath("nodeAffinity"), is.NodeAffinity,
			validation.FieldImmutableErrorMsg+", except for updating from beta label to GA"))
	}
	if was.VolumeAttributesClassName != nil && is.VolumeAttributesClassName == nil {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "volumeAttributesClassName"),
			"update from non-nil value to nil is forbidden"))
	}
	return errs
}

// persistentVolumeClaimUpdate allows changes that bind a claim or set its class, and those of the size and the
// attributes of a bound claim, and the copy of the source in claims that an earlier version has stored.
func persistentVolumeClaimUpdate(obj, old runtime.Object) (errs field.ErrorList) {
	claim, before := obj.(*corev1.PersistentVolumeClaim), old.(*corev1.PersistentVolumeClaim)
	is, was := claim.Spec.DeepCopy(), before.Spec.DeepCopy()
	completeSources(was, true)
	if was.VolumeName == "" {
		was.VolumeName = is.VolumeName
	}
	const annotation = corev1.BetaStorageClassAnnotation
	class, annotated := before.Annotations[annotation]
	now, stays := claim.Annotations[annotation]
	sets := was.StorageClassName == nil && is.StorageClassName != nil && (!annotated || *is.StorageClassName == class)
	if replaced := sets && annotated && !stays; now != class && !replaced {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations", annotation), now,
			validation.FieldImmutableErrorMsg))
	}
	if sets {
		is.StorageClassName = nil
	}
	if claim.Status.Phase == corev1.ClaimBound {
		is.VolumeAttributesClassName = was.VolumeAttributesClassName
		if is.Resources.Requests != nil {
			is.Resources.Requests[corev1.ResourceStorage] = was.Resources.Requests[corev1.ResourceStorage]
		}
	}
	at := field.NewPath("spec")
	if !equality.Semantic.DeepEqual(is, was) {
		errs = append(errs, field.Forbidden(at, fmt.Sprintf("spec is immutable after creation except "+
			"resources.requests and volumeAttributesClassName for bound claims\n%v", diff.Diff(*was, *is))))
	}
	errs = append(errs, validation.ValidateImmutableField(is.VolumeMode, was.VolumeMode, field.NewPath("volumeMode"))...)
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if size.Cmp(before.Spec.Resources.Requests[corev1.ResourceStorage]) < 0 &&
		size.Cmp(before.Status.Capacity[corev1.ResourceStorage]) <= 0 {
		errs = append(errs, field.Forbidden(at.Child("resources", "requests", "storage"),
			"field can not be less than status.capacity"))
	}
	removed := ""
	switch attributes := claim.Spec.VolumeAttributesClassName; {
	case before.Status.CurrentVolumeAttributesClassName == nil ||
		equality.Semantic.DeepEqual(attributes, before.Spec.VolumeAttributesClassName):
	case attributes == nil:
		removed = "nil"
	case *attributes == "":
		removed = "empty string"
	}
	if removed != "" {
		errs = append(errs, field.Forbidden(at.Child("volumeAttributesClassName"),
			"update to "+removed+" is forbidden when status.currentVolumeAttributesClassName is not nil"))
	}
	return errs
}

func quotaUpdate(obj, old runtime.Object) field.ErrorList {
	is, was := obj.(*corev1.ResourceQuota).Spec.Scopes, old.(*corev1.ResourceQuota).Spec.Scopes
	if sets.New(is...).Equal(sets.New(was...)) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "scopes"), is, validation.FieldImmutableErrorMsg)}
}

// jobUpdate returns errors for changes of the template, and of the completions of a Job unless they are indexed, and as
// many as its pods at a time.
func jobUpdate(obj, old runtime.Object) (errs field.ErrorList) {
	is, before := &obj.(*batchv1.Job).Spec, old.(*batchv1.Job)
	was, at := &before.Spec, field.NewPath("spec")
	if mutableTemplate(before) {
		allowed := was.Template.Spec.DeepCopy()
		allowAtSuspension(allowed, &is.Template.Spec)
		errs = append(errs, validation.ValidateImmutableField(is.Template.Spec, *allowed, at.Child("template.spec"))...)
	} else {
		errs = append(errs, validation.ValidateImmutableField(is.Template, was.Template, at.Child("template"))...)
	}
	switch {
	case is.CompletionMode == nil || *is.CompletionMode != batchv1.IndexedCompletion:
		errs = append(errs, validation.ValidateImmutableField(is.Completions, was.Completions, at.Child("completions"))...)
	case is.Completions != nil && !equality.Semantic.DeepEqual(is.Completions, was.Completions) &&
		!equality.Semantic.DeepEqual(is.Completions, is.Parallelism):
		errs = append(errs, field.Invalid(at.Child("completions"), is.Completions,
			"can only be modified in tandem with spec.parallelism"))
	}
	return errs
}

// mutableTemplate reports whether a Job is suspended, and has no pods of its template.
func mutableTemplate(job *batchv1.Job) bool {
	suspended := job.Status.StartTime == nil || slices.ContainsFunc(job.Status.Conditions,
		func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionTrue
		})
	return suspended && job.Spec.Suspend != nil && *job.Spec.Suspend && job.Status.Active == 0
}

// allowAtSuspension sets what may change in the template of a suspended Job besides labels and annotations: on which
// nodes pods may run, and the resources of containers.
func allowAtSuspension(template, is *corev1.PodSpec) {
	template.Affinity = withNodeAffinityOf(template.Affinity, is.Affinity)
	template.NodeSelector, template.Tolerations, template.SchedulingGates = is.NodeSelector, is.Tolerations,
		is.SchedulingGates
	allowResources := func(containers, is []corev1.Container) {
		for i := range containers {
			if len(containers) == len(is) && containers[i].Name == is[i].Name {
				containers[i].Resources = is[i].Resources
			}
		}
	}
	allowResources(template.Containers, is.Containers)
	allowResources(template.InitContainers, is.InitContainers)
}
