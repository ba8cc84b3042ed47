package builtin

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// validateValues returns an error for each value of an object that kube-apiserver refuses, with its messages. A value
// that kube-apiserver accepts is accepted; not every value that it refuses is refused.
func validateValues(obj runtime.Object) field.ErrorList {
	switch o := obj.(type) {
	case *corev1.ConfigMap:
		return validateConfigMap(o)
	case *corev1.Secret:
		return validateSecret(o)
	case *corev1.Service:
		return validateService(o)
	case *corev1.Pod:
		return validatePod(o)
	case *corev1.PodTemplate:
		return validatePodTemplate(field.NewPath("template"), &o.Template)
	case *corev1.ReplicationController:
		return validateReplicationController(o)
	case *appsv1.Deployment:
		return validateDeployment(o)
	case *appsv1.ReplicaSet:
		return validateReplicaSet(o)
	case *appsv1.StatefulSet:
		return append(validateClaimTemplates(o), validateStatefulSet(o)...)
	case *appsv1.DaemonSet:
		return validateDaemonSet(o)
	case *batchv1.Job:
		return validateJob(o)
	case *batchv1.CronJob:
		return validateCronJob(o)
	case *corev1.PersistentVolume:
		return validateVolume(o)
	case *corev1.PersistentVolumeClaim:
		return validateClaim(field.NewPath("spec"), &o.Spec)
	case *corev1.ResourceQuota:
		return validateQuota(o)
	case *corev1.LimitRange:
		return validateLimitRange(o)
	case *discoveryv1.EndpointSlice:
		return validateEndpointSlice(o)
	case *storagev1.StorageClass:
		return validateStorageClass(o)
	case *networkingv1.Ingress:
		return validateIngress(o)
	case *networkingv1.NetworkPolicy:
		return validateNetworkPolicy(o)
	case *autoscalingv2.HorizontalPodAutoscaler:
		return validateAutoscaler(o)
	case *policyv1.PodDisruptionBudget:
		return validateDisruptionBudget(o)
	case *rbacv1.Role:
		return validateRole(o)
	case *rbacv1.ClusterRole:
		return validateClusterRole(o)
	case *rbacv1.RoleBinding:
		return validateRoleBinding(o)
	case *rbacv1.ClusterRoleBinding:
		return validateClusterRoleBinding(o)
	case *schedulingv1.PriorityClass:
		return validatePriorityClass(o)
	case *flowcontrolv1.FlowSchema:
		return validateFlowSchema(o)
	case *flowcontrolv1.PriorityLevelConfiguration:
		return validatePriorityLevel(o)
	case *storagemigrationv1.StorageVersionMigration:
		return validateStorageMigration(o)
	case *apiregistrationv1.APIService:
		return validateAPIService(o)
	}
	return nil
}

// validateChangedValues is validateValues for an update. An object whose stored values an earlier version accepted
// stays changeable: its finalizers must be removable.
func validateChangedValues(obj, old runtime.Object) field.ErrorList {
	validate := validateValues
	if _, ok := obj.(*appsv1.StatefulSet); ok {
		validate = func(o runtime.Object) field.ErrorList { return validateStatefulSet(o.(*appsv1.StatefulSet)) }
	}
	errs := validate(obj)
	if len(errs) > 0 && len(validate(old)) > 0 {
		return nil
	}
	return errs
}

// invalids returns an error for each message about a value.
func invalids(at *field.Path, value any, messages []string) (errs field.ErrorList) {
	for _, message := range messages {
		errs = append(errs, field.Invalid(at, value, message))
	}
	return errs
}

// oneOf returns an error if a value is not supported.
func oneOf[T ~string](at *field.Path, value T, supported ...T) field.ErrorList {
	for _, s := range supported {
		if value == s {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(at, value, supported)}
}

func portNumberOrName(at *field.Path, port intstr.IntOrString) field.ErrorList {
	if port.Type == intstr.String {
		return invalids(at, port.StrVal, validation.IsValidPortName(port.StrVal))
	}
	return invalids(at, port.IntValue(), validation.IsValidPortNum(port.IntValue()))
}
