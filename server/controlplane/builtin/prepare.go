package builtin

import (
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/services"
)

// prepareNamespace sets the phase Active and the finalizer of a new namespace.
func prepareNamespace(obj runtime.Object) {
	ns := obj.(*corev1.Namespace)
	ns.Status.Phase = corev1.NamespaceActive
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

// keepNamespaceFinalizers keeps the spec, which only the subresource finalize changes.
func keepNamespaceFinalizers(obj, old runtime.Object) {
	obj.(*corev1.Namespace).Spec.Finalizers = old.(*corev1.Namespace).Spec.Finalizers
}

func preparePod(obj runtime.Object) {
	pod := obj.(*corev1.Pod)
	pod.Status.Phase = corev1.PodPending
	pod.Status.QOSClass = qosClass(&pod.Spec)
	if len(pod.Spec.SchedulingGates) > 0 {
		setPodCondition(pod, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates",
		})
	}
}

// prepareEndpointSlice clears the field of an earlier version of the API, to which v1 ignores writes.
func prepareEndpointSlice(obj runtime.Object) {
	slice := obj.(*discoveryv1.EndpointSlice)
	for i := range slice.Endpoints {
		slice.Endpoints[i].DeprecatedTopology = nil
	}
}

// prepareEndpointSliceUpdate leaves the field in endpoints that are not changed.
func prepareEndpointSliceUpdate(obj, old runtime.Object) {
	if !equality.Semantic.DeepEqual(obj.(*discoveryv1.EndpointSlice).Endpoints,
		old.(*discoveryv1.EndpointSlice).Endpoints) {
		prepareEndpointSlice(obj)
	}
}

func prepareServiceUpdate(obj, old runtime.Object) {
	services.ClearByType(obj.(*corev1.Service), old.(*corev1.Service))
}

// qosClass returns a pod's quality-of-service class by the rules of the Pod API: BestEffort when nothing
// is requested or limited, Guaranteed when every container has CPU and memory limits equal to its
// requests, Burstable otherwise. The resources of the pod itself take the place of its containers'.
func qosClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	counted := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
	var all []corev1.ResourceRequirements
	if spec.Resources != nil {
		all = append(all, *spec.Resources)
	} else {
		for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
			all = append(all, c.Resources)
		}
	}
	any, guaranteed := false, true
	for _, of := range all {
		for _, name := range counted {
			limit, limited := of.Limits[name]
			request, requested := of.Requests[name]
			any = any || limited && !limit.IsZero() || requested && !request.IsZero()
			guaranteed = guaranteed && limited && !limit.IsZero() && limit.Cmp(request) == 0
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBurstable
	}
}

// prepareNode adds the taint of nodes that are not ready, as kube-apiserver's plugin TaintNodesByCondition does. The
// program that makes a node ready removes it.
func prepareNode(obj runtime.Object) {
	node := obj.(*corev1.Node)
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
}

// prepareJob sets the selector and the labels that distinguish the pods of a Job from others. Those that are set stay:
// validateJob refuses the ones of another Job.
func prepareJob(obj runtime.Object) {
	job := obj.(*batchv1.Job)
	if job.Spec.ManualSelector != nil && *job.Spec.ManualSelector {
		return
	}
	labels := generatedLabels(job)
	maps.Copy(labels, job.Spec.Template.Labels)
	job.Spec.Template.Labels = labels
	if job.Spec.Selector == nil {
		job.Spec.Selector = &metav1.LabelSelector{}
	}
	if job.Spec.Selector.MatchLabels == nil {
		job.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, ok := job.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !ok {
		job.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = string(job.UID)
	}
}

// generatedLabels returns the labels of the pods of a Job, unless its selector is the user's.
func generatedLabels(job *batchv1.Job) map[string]string {
	return map[string]string{
		batchv1.ControllerUidLabel: string(job.UID), "controller-uid": string(job.UID),
		batchv1.JobNameLabel: job.Name, "job-name": job.Name,
	}
}

func preparePersistentVolume(obj runtime.Object) {
	now := metav1.Now()
	status := &obj.(*corev1.PersistentVolume).Status
	status.Phase, status.LastPhaseTransitionTime = corev1.VolumePending, &now
}

func preparePersistentVolumeClaim(obj runtime.Object) {
	claim := obj.(*corev1.PersistentVolumeClaim)
	claim.Status.Phase = corev1.ClaimPending
	completeSources(&claim.Spec, false)
}

func preparePersistentVolumeClaimUpdate(obj, old runtime.Object) {
	was := &old.(*corev1.PersistentVolumeClaim).Spec
	completeSources(&obj.(*corev1.PersistentVolumeClaim).Spec, was.DataSource != nil || was.DataSourceRef != nil)
}

// completeSources copies the source of a claim between the two fields that name it. A dataSource alone, which older
// clients write, may be a claim or a snapshot, and anything else is cleared unless the claim had a source before.
func completeSources(spec *corev1.PersistentVolumeClaimSpec, had bool) {
	source, ref := spec.DataSource, spec.DataSourceRef
	switch {
	case ref == nil && source == nil:
	case ref == nil && !had && !isOlderSource(source):
		spec.DataSource = nil
	case ref == nil:
		spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}
	case source == nil && (ref.Namespace == nil || *ref.Namespace == ""):
		spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	}
}

func isOlderSource(s *corev1.TypedLocalObjectReference) bool {
	group := ""
	if s.APIGroup != nil {
		group = *s.APIGroup
	}
	return s.Kind == "PersistentVolumeClaim" && group == "" || s.Kind == "VolumeSnapshot" &&
		group == "snapshot.storage.k8s.io"
}
