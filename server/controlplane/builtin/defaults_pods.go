package builtin

import (
	"maps"
	"math"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func defaultPod(pod *corev1.Pod) {
	defaultAddresses(&pod.Status)
	if period := pod.Spec.TerminationGracePeriodSeconds; period != nil && *period < 0 {
		pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
	}
	point(&pod.Spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	defaultPodSpec(&pod.Spec)
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			defaultRequests(&containers[i].Resources)
			if pod.Spec.HostNetwork {
				defaultHostPorts(containers[i].Ports)
			}
		}
	}
}

// defaultHostPorts sets the ports of the node of a container in the node's network.
func defaultHostPorts(ports []corev1.ContainerPort) {
	for i := range ports {
		fill(&ports[i].HostPort, ports[i].ContainerPort)
	}
}

// defaultAddresses sets the address by the list of addresses, or the list by the address, which counts if they differ.
func defaultAddresses(s *corev1.PodStatus) {
	switch {
	case s.PodIP == "" && len(s.PodIPs) > 0:
		s.PodIP = s.PodIPs[0].IP
	case s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP):
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
}

// defaultRequests sets requests that are not set to the limits.
func defaultRequests(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		if _, ok := r.Requests[name]; !ok {
			r.Requests[name] = limit.DeepCopy()
		}
	}
}

func defaultPodSpec(spec *corev1.PodSpec) {
	fill(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	fill(&spec.DNSPolicy, corev1.DNSClusterFirst)
	fill(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	fill(&spec.SchedulerName, corev1.DefaultSchedulerName)
	point(&spec.SecurityContext, corev1.PodSecurityContext{})
	point(&spec.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			defaultContainer(&containers[i])
		}
	}
	for i := range spec.EphemeralContainers {
		defaultContainer((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	if spec.Resources != nil {
		roundResources(spec.Resources)
	}
	roundUp(spec.Overhead)
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i].VolumeSource)
	}
}

// defaultVolume sets emptyDir in a volume without a source.
func defaultVolume(v *corev1.VolumeSource) {
	const readable = 0o644
	switch {
	case *v == (corev1.VolumeSource{}):
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	case v.Secret != nil:
		point(&v.Secret.DefaultMode, readable)
	case v.ConfigMap != nil:
		point(&v.ConfigMap.DefaultMode, readable)
	case v.DownwardAPI != nil:
		point(&v.DownwardAPI.DefaultMode, readable)
		defaultFieldRefs(v.DownwardAPI.Items)
	case v.Projected != nil:
		point(&v.Projected.DefaultMode, readable)
		for i := range v.Projected.Sources {
			defaultProjection(&v.Projected.Sources[i])
		}
	case v.HostPath != nil:
		point(&v.HostPath.Type, corev1.HostPathUnset)
	case v.Image != nil:
		fill(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		claim := &v.Ephemeral.VolumeClaimTemplate.Spec
		point(&claim.VolumeMode, corev1.PersistentVolumeFilesystem)
		roundUp(claim.Resources.Limits)
		roundUp(claim.Resources.Requests)
	}
}

func defaultProjection(p *corev1.VolumeProjection) {
	const seconds = 3600
	if p.DownwardAPI != nil {
		defaultFieldRefs(p.DownwardAPI.Items)
	}
	if p.ServiceAccountToken != nil {
		point(&p.ServiceAccountToken.ExpirationSeconds, seconds)
	}
}

func defaultFieldRefs(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		defaultFieldRef(files[i].FieldRef)
	}
}

func defaultFieldRef(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		fill(&ref.APIVersion, "v1")
	}
}

func roundResources(r *corev1.ResourceRequirements) {
	roundUp(r.Limits)
	roundUp(r.Requests)
}

// roundUp rounds quantities to thousandths, the smallest part of the API.
func roundUp(list corev1.ResourceList) {
	for name, quantity := range list {
		if !quantity.RoundUp(resource.Milli) {
			list[name] = quantity
		}
	}
}

func defaultContainer(c *corev1.Container) {
	fill(&c.ImagePullPolicy, pullPolicy(c.Image))
	fill(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	fill(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		fill(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				point(&from.FileKeyRef.Optional, false)
			}
		}
	}
	roundResources(&c.Resources)
	if c.Lifecycle != nil {
		for _, hook := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if hook != nil {
				defaultHTTPGet(hook.HTTPGet)
			}
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe != nil {
			defaultProbe(probe)
		}
	}
}

// pullPolicy returns Always for an image without a tag or digest, or tagged latest.
func pullPolicy(image string) corev1.PullPolicy {
	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, tagged := strings.Cut(name, ":")
	digest := strings.Contains(name, "@")
	if !digest && (!tagged || tag == "latest") {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultProbe(p *corev1.Probe) {
	fill(&p.TimeoutSeconds, 1)
	fill(&p.PeriodSeconds, 10)
	fill(&p.SuccessThreshold, 1)
	fill(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		point(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(get *corev1.HTTPGetAction) {
	if get != nil {
		fill(&get.Path, "/")
		fill(&get.Scheme, corev1.URISchemeHTTP)
	}
}

func defaultReplicationController(rc *corev1.ReplicationController) {
	point(&rc.Spec.Replicas, 1)
	if rc.Spec.Template == nil {
		return
	}
	defaultPodSpec(&rc.Spec.Template.Spec)
	if len(rc.Spec.Selector) == 0 {
		rc.Spec.Selector = maps.Clone(rc.Spec.Template.Labels)
	}
	if len(rc.Labels) == 0 {
		rc.Labels = maps.Clone(rc.Spec.Template.Labels)
	}
}

func defaultDeployment(d *appsv1.Deployment) {
	point(&d.Spec.Replicas, 1)
	point(&d.Spec.RevisionHistoryLimit, 10)
	point(&d.Spec.ProgressDeadlineSeconds, 600)
	strategy := &d.Spec.Strategy
	fill(&strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		point(&strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		point(&strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		point(&strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	defaultPodSpec(&d.Spec.Template.Spec)
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	point(&s.Spec.Replicas, 1)
	point(&s.Spec.RevisionHistoryLimit, 10)
	fill(&s.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	strategy := &s.Spec.UpdateStrategy
	if strategy.Type == "" {
		strategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		point(&strategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if strategy.RollingUpdate != nil {
		point(&strategy.RollingUpdate.Partition, 0)
	}
	point(&s.Spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	fill(&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	fill(&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	defaultPodSpec(&s.Spec.Template.Spec)
	for i := range s.Spec.VolumeClaimTemplates {
		claim := &s.Spec.VolumeClaimTemplates[i]
		fill(&claim.APIVersion, "v1")
		fill(&claim.Kind, "PersistentVolumeClaim")
		fill(&claim.Status.Phase, corev1.ClaimPending)
		point(&claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	}
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	point(&d.Spec.RevisionHistoryLimit, 10)
	strategy := &d.Spec.UpdateStrategy
	fill(&strategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if strategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		point(&strategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		point(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		point(&strategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	defaultPodSpec(&d.Spec.Template.Spec)
}

func defaultJob(job *batchv1.Job) {
	spec := &job.Spec
	if spec.Completions == nil && spec.Parallelism == nil {
		point(&spec.Completions, 1)
	}
	point(&spec.Parallelism, 1)
	if spec.BackoffLimitPerIndex != nil {
		point(&spec.BackoffLimit, math.MaxInt32)
	}
	point(&spec.BackoffLimit, 6)
	point(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	point(&spec.Suspend, false)
	point(&spec.ManualSelector, false)
	if spec.PodFailurePolicy != nil {
		point(&spec.PodReplacementPolicy, batchv1.Failed)
	}
	point(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	if len(job.Labels) == 0 {
		job.Labels = maps.Clone(spec.Template.Labels)
	}
	defaultPodSpec(&spec.Template.Spec)
}

func defaultCronJob(c *batchv1.CronJob) {
	fill(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	point(&c.Spec.Suspend, false)
	point(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	point(&c.Spec.FailedJobsHistoryLimit, 1)
	defaultPodSpec(&c.Spec.JobTemplate.Spec.Template.Spec)
}
