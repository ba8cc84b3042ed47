package builtin

import (
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/resourcename"
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
	completeSelectors(pod)
	completePodResources(&pod.Spec)
	pod.Status.Phase = corev1.PodPending
	pod.Status.QOSClass = qosClass(pod)
	if len(pod.Spec.SchedulingGates) > 0 {
		setPodCondition(pod, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates",
		})
	}
}

// keepPodResources keeps the resources of a pod that a client leaves out which does not know them.
func keepPodResources(obj, old runtime.Object) {
	if is, was := &obj.(*corev1.Pod).Spec, old.(*corev1.Pod).Spec; is.Resources == nil {
		is.Resources = was.Resources.DeepCopy()
	}
}

// completeSelectors adds the labels that a pod's affinities to pods and its spread name by their keys to the selectors.
// Selectors that are nil match nothing, and stay so.
func completeSelectors(pod *corev1.Pod) {
	add := func(selector *metav1.LabelSelector, operator metav1.LabelSelectorOperator, keys []string) {
		for _, key := range keys {
			if value, ok := pod.Labels[key]; ok && selector != nil {
				selector.MatchExpressions = append(selector.MatchExpressions,
					metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
			}
		}
	}
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		add(c.LabelSelector, metav1.LabelSelectorOpIn, c.MatchLabelKeys)
	}
	affinity := pod.Spec.Affinity
	if affinity == nil {
		return
	}
	var terms []*corev1.PodAffinityTerm
	addTerms := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for i := range required {
			terms = append(terms, &required[i])
		}
		for i := range preferred {
			terms = append(terms, &preferred[i].PodAffinityTerm)
		}
	}
	if a := affinity.PodAffinity; a != nil {
		addTerms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := affinity.PodAntiAffinity; a != nil {
		addTerms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	for _, t := range terms {
		add(t.LabelSelector, metav1.LabelSelectorOpIn, t.MatchLabelKeys)
		add(t.LabelSelector, metav1.LabelSelectorOpNotIn, t.MismatchLabelKeys)
	}
}

// completePodResources sets what a pod with resources of its own leaves out of them: limits of huge pages as those of
// its containers, requests as those of its containers or else its own limits, and limits as those of its containers,
// if each of them has one. A limit is never below the request.
func completePodResources(spec *corev1.PodSpec) {
	own := spec.Resources
	if own == nil || len(own.Requests)+len(own.Limits) == 0 {
		return
	}
	set := func(list *corev1.ResourceList, name corev1.ResourceName, amount resource.Quantity) {
		if _, has := (*list)[name]; has || !resourcehelper.IsSupportedPodLevelResource(name) {
			return
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = amount.DeepCopy()
	}
	pod, options := &corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{}
	limits := resourcehelper.AggregateContainerLimits(pod, options)
	for name, limit := range limits {
		if _, requested := own.Requests[name]; !requested && resourcename.HugePages(name) {
			set(&own.Limits, name, limit)
		}
	}
	for name, request := range resourcehelper.AggregateContainerRequests(pod, options) {
		if resourcename.Overcommitted(name) {
			set(&own.Requests, name, request)
		}
	}
	for name, limit := range own.Limits {
		set(&own.Requests, name, limit)
	}
	for name, request := range own.Requests {
		unlimited := func(c corev1.Container) bool { _, has := c.Resources.Limits[name]; return !has }
		if slices.ContainsFunc(spec.Containers, unlimited) || slices.ContainsFunc(spec.InitContainers, unlimited) {
			continue
		}
		limit := limits[name]
		if request.Cmp(limit) > 0 {
			limit = request
		}
		set(&own.Limits, name, limit)
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
func qosClass(pod *corev1.Pod) corev1.PodQOSClass {
	counted := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
	var all []corev1.ResourceRequirements
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		all = append(all, *pod.Spec.Resources)
	} else {
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
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
