package builtin

import (
	"reflect"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/services"
)

// immutableFields lists the fields that no update may change, by resource. Paths consist
// of JSON names. Fields that may be changed under a condition are in immutableRules.
var immutableFields = map[string][]string{
	"secrets":                  {"type"},
	"persistentvolumes":        {"spec.volumeMode"},
	"deployments.apps":         {"spec.selector"},
	"replicasets.apps":         {"spec.selector"},
	"daemonsets.apps":          {"spec.selector"},
	"controllerrevisions.apps": {"data"},
	"jobs.batch": {"spec.selector", "spec.completionMode", "spec.podFailurePolicy", "spec.backoffLimitPerIndex",
		"spec.managedBy", "spec.successPolicy"},
	"ingressclasses.networking.k8s.io": {"spec.controller"},
	"storageclasses.storage.k8s.io": {"provisioner", "parameters", "reclaimPolicy",
		"volumeBindingMode"},
	"volumeattachments.storage.k8s.io":                 {"spec"},
	"csidrivers.storage.k8s.io":                        {"spec.attachRequired", "spec.volumeLifecycleModes"},
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
	"statefulsets.apps":      statefulSetUpdate,
	"jobs.batch":             jobUpdate,
	"rolebindings.rbac.authorization.k8s.io": func(obj, old runtime.Object) field.ErrorList {
		return roleRefUpdate(obj.(*rbacv1.RoleBinding).RoleRef, old.(*rbacv1.RoleBinding).RoleRef)
	},
	"clusterrolebindings.rbac.authorization.k8s.io": func(obj, old runtime.Object) field.ErrorList {
		return roleRefUpdate(obj.(*rbacv1.ClusterRoleBinding).RoleRef, old.(*rbacv1.ClusterRoleBinding).RoleRef)
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

func roleRefUpdate(is, was rbacv1.RoleRef) field.ErrorList {
	if is == was {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("roleRef"), is, "cannot change roleRef")}
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

func persistentVolumeUpdate(obj, old runtime.Object) field.ErrorList {
	if equality.Semantic.DeepEqual(obj.(*corev1.PersistentVolume).Spec.PersistentVolumeSource,
		old.(*corev1.PersistentVolume).Spec.PersistentVolumeSource) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "persistentvolumesource"),
		"spec.persistentvolumesource is immutable after creation")}
}

// persistentVolumeClaimUpdate allows changes that bind a claim, set its class, or resize it, and the copy of the source
// in claims that an earlier version has stored.
func persistentVolumeClaimUpdate(obj, old runtime.Object) field.ErrorList {
	is, was := obj.(*corev1.PersistentVolumeClaim).Spec.DeepCopy(), old.(*corev1.PersistentVolumeClaim).Spec
	completeSources(&was, true)
	is.Resources.Requests, is.VolumeAttributesClassName = was.Resources.Requests, was.VolumeAttributesClassName
	if was.VolumeName == "" {
		is.VolumeName = ""
	}
	if was.StorageClassName == nil {
		is.StorageClassName = nil
	}
	if equality.Semantic.DeepEqual(*is, was) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"),
		"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims")}
}

func statefulSetUpdate(obj, old runtime.Object) field.ErrorList {
	is, was := obj.(*appsv1.StatefulSet).Spec.DeepCopy(), old.(*appsv1.StatefulSet).Spec
	is.Replicas, is.Template, is.UpdateStrategy, is.MinReadySeconds = was.Replicas, was.Template, was.UpdateStrategy,
		was.MinReadySeconds
	is.Ordinals, is.RevisionHistoryLimit = was.Ordinals, was.RevisionHistoryLimit
	is.PersistentVolumeClaimRetentionPolicy = was.PersistentVolumeClaimRetentionPolicy
	if equality.Semantic.DeepEqual(*is, was) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"),
		"updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "+
			"'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden")}
}

// jobUpdate returns errors for changes of the template of a running job, and of the completions of a
// job whose completions are not indexed.
func jobUpdate(obj, old runtime.Object) (errs field.ErrorList) {
	is, was := obj.(*batchv1.Job).Spec, old.(*batchv1.Job).Spec
	if was.Suspend == nil || !*was.Suspend {
		errs = append(errs, validation.ValidateImmutableField(is.Template, was.Template,
			field.NewPath("spec", "template"))...)
	}
	if is.CompletionMode == nil || *is.CompletionMode != batchv1.IndexedCompletion {
		errs = append(errs, validation.ValidateImmutableField(is.Completions, was.Completions,
			field.NewPath("spec", "completions"))...)
	}
	return errs
}
