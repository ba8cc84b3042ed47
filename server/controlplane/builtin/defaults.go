package builtin

import (
	"maps"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/services"
)

// addDefaults registers the defaults that are set when an object is decoded from a request or from
// storage. They are the defaults of the Kubernetes API on which controllers rely in tests, not all
// of them.
func addDefaults(scheme *runtime.Scheme) error {
	byType[admissionregistrationv1.MutatingWebhookConfiguration](scheme, defaultMutatingWebhooks)
	byType[admissionregistrationv1.ValidatingWebhookConfiguration](scheme, defaultValidatingWebhooks)
	addPolicyDefaults(scheme)
	byType[authenticationv1.TokenRequest](scheme, func(o *authenticationv1.TokenRequest) {
		point(&o.Spec.ExpirationSeconds, defaultTokenSeconds)
	})
	byType[corev1.LimitRange](scheme, defaultLimitRange)
	byType[corev1.Namespace](scheme, defaultNamespace)
	byType[corev1.Pod](scheme, func(o *corev1.Pod) { defaultPod(o) })
	byType[corev1.PodTemplate](scheme, func(o *corev1.PodTemplate) { defaultPodSpec(&o.Template.Spec) })
	byType[corev1.Service](scheme, defaultService)
	byType[corev1.Secret](scheme, defaultSecret)
	//lint:ignore SA1019 deprecated, and served like by kube-apiserver
	byType[corev1.Endpoints](scheme, defaultEndpoints)
	byType[discoveryv1.EndpointSlice](scheme, func(o *discoveryv1.EndpointSlice) {
		for i := range o.Ports {
			point(&o.Ports[i].Name, "")
			point(&o.Ports[i].Protocol, corev1.ProtocolTCP)
		}
	})
	byType[corev1.PersistentVolume](scheme, func(o *corev1.PersistentVolume) {
		fill(&o.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
		point(&o.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
		fill(&o.Status.Phase, corev1.VolumePending)
		if o.Spec.HostPath != nil {
			point(&o.Spec.HostPath.Type, corev1.HostPathUnset)
		}
	})
	byType[corev1.Node](scheme, func(o *corev1.Node) {
		if o.Status.Allocatable == nil {
			o.Status.Allocatable = maps.Clone(o.Status.Capacity)
		}
	})
	byType[corev1.PersistentVolumeClaim](scheme, func(o *corev1.PersistentVolumeClaim) {
		fill(&o.Status.Phase, corev1.ClaimPending)
		point(&o.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	})
	byType[corev1.ReplicationController](scheme, defaultReplicationController)
	byType[appsv1.Deployment](scheme, defaultDeployment)
	byType[appsv1.ReplicaSet](scheme, func(o *appsv1.ReplicaSet) {
		point(&o.Spec.Replicas, 1)
		defaultPodSpec(&o.Spec.Template.Spec)
	})
	byType[appsv1.StatefulSet](scheme, defaultStatefulSet)
	byType[appsv1.DaemonSet](scheme, defaultDaemonSet)
	byType[batchv1.Job](scheme, defaultJob)
	byType[batchv1.CronJob](scheme, defaultCronJob)
	byType[networkingv1.NetworkPolicy](scheme, defaultNetworkPolicy)
	byType[networkingv1.IngressClass](scheme, func(o *networkingv1.IngressClass) {
		if o.Spec.Parameters != nil {
			point(&o.Spec.Parameters.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
		}
	})
	byType[schedulingv1.PriorityClass](scheme, func(o *schedulingv1.PriorityClass) {
		point(&o.PreemptionPolicy, corev1.PreemptLowerPriority)
	})
	byType[autoscalingv2.HorizontalPodAutoscaler](scheme, func(o *autoscalingv2.HorizontalPodAutoscaler) {
		point(&o.Spec.MinReplicas, 1)
		if len(o.Spec.Metrics) == 0 {
			o.Spec.Metrics = []autoscalingv2.MetricSpec{cpuTarget(defaultCPUUtilization)}
		}
		if o.Spec.Behavior != nil {
			defaultBehavior(o.Spec.Behavior)
		}
	})
	byType[rbacv1.RoleBinding](scheme, func(o *rbacv1.RoleBinding) {
		fill(&o.RoleRef.APIGroup, rbacv1.GroupName)
		defaultSubjects(o.Subjects)
	})
	byType[rbacv1.ClusterRoleBinding](scheme, func(o *rbacv1.ClusterRoleBinding) {
		fill(&o.RoleRef.APIGroup, rbacv1.GroupName)
		defaultSubjects(o.Subjects)
	})
	addDeviceDefaults(scheme)
	addFlowDefaults(scheme)
	byType[storagev1.CSIDriver](scheme, defaultCSIDriver)
	byType[storagev1.StorageClass](scheme, func(o *storagev1.StorageClass) {
		point(&o.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
		point(&o.VolumeBindingMode, storagev1.VolumeBindingImmediate)
	})
	return nil
}

// byType registers set for objects of type *T.
func byType[T any](scheme *runtime.Scheme, set func(*T)) {
	scheme.AddTypeDefaultingFunc(any(new(T)).(runtime.Object), func(obj any) { set(obj.(*T)) })
}

// fill sets a field that has its zero value.
func fill[T comparable](at *T, value T) {
	var zero T
	if *at == zero {
		*at = value
	}
}

// point sets a pointer that is nil.
func point[T any](at **T, value T) {
	if *at == nil {
		*at = &value
	}
}

// defaultNamespace sets the label by which namespaces are selected. A generated name is unknown when
// the object is decoded: strategy.Canonicalize sets the label again.
func defaultNamespace(ns *corev1.Namespace) {
	if ns.Name == "" {
		return
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

// defaultSecret also merges stringData into data: only data is stored.
func defaultSecret(s *corev1.Secret) {
	fill(&s.Type, corev1.SecretTypeOpaque)
	for key, value := range s.StringData {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

func defaultService(s *corev1.Service) {
	fill(&s.Spec.Type, corev1.ServiceTypeClusterIP)
	fill(&s.Spec.SessionAffinity, corev1.ServiceAffinityNone)
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		fill(&port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == (intstr.IntOrString{}) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	defaultSessionAffinity(&s.Spec)
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	point(&s.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	if services.IsExternal(s) {
		fill(&s.Spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		point(&s.Spec.AllocateLoadBalancerNodePorts, true)
		for i := range s.Status.LoadBalancer.Ingress {
			if ingress := &s.Status.LoadBalancer.Ingress[i]; ingress.IP != "" {
				point(&ingress.IPMode, corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

// defaultSessionAffinity sets the time for which a client has the same pod.
func defaultSessionAffinity(s *corev1.ServiceSpec) {
	config := s.SessionAffinityConfig
	switch {
	case s.SessionAffinity == corev1.ServiceAffinityNone:
		s.SessionAffinityConfig = nil
	case s.SessionAffinity == corev1.ServiceAffinityClientIP && (config == nil || config.ClientIP == nil ||
		config.ClientIP.TimeoutSeconds == nil):
		seconds := corev1.DefaultClientIPServiceAffinitySeconds
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
}

//lint:ignore SA1019 deprecated, and served like by kube-apiserver
func defaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			fill(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	point(&d.Spec.AttachRequired, true)
	point(&d.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	point(&d.Spec.PodInfoOnMount, false)
	point(&d.Spec.RequiresRepublish, false)
	point(&d.Spec.SELinuxMount, false)
	point(&d.Spec.StorageCapacity, false)
	if len(d.Spec.VolumeLifecycleModes) == 0 {
		d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

func defaultSubjects(subjects []rbacv1.Subject) {
	for i := range subjects {
		if kind := subjects[i].Kind; kind == rbacv1.UserKind || kind == rbacv1.GroupKind {
			fill(&subjects[i].APIGroup, rbacv1.GroupName)
		}
	}
}

func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	for i := range p.Spec.Ingress {
		defaultPolicyPorts(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		defaultPolicyPorts(p.Spec.Egress[i].Ports)
	}
	if len(p.Spec.PolicyTypes) > 0 {
		return
	}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if len(p.Spec.Egress) > 0 {
		p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
}

func defaultPolicyPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		point(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}
