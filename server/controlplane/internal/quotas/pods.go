package quotas

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/resourcename"
)

var (
	podResource = corev1.Resource("pods")
	// podCount counts all pods; corev1.ResourcePods only those that have not ended.
	podCount = generic.ObjectCountQuotaResourceNameFor(podResource)
)

// computeNames has the names in quotas of a container's requests and limits.
var computeNames = map[corev1.ResourceName]struct{ requests, limits corev1.ResourceName }{
	corev1.ResourceCPU:              {corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU},
	corev1.ResourceMemory:           {corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory},
	corev1.ResourceEphemeralStorage: {corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsEphemeralStorage},
}

// plainPodNames are the names that pods use, without huge pages and extended resources.
var plainPodNames = func() []corev1.ResourceName {
	names := []corev1.ResourceName{podCount, corev1.ResourcePods}
	for name, of := range computeNames {
		names = append(names, name, of.requests, of.limits)
	}
	return names
}()

// requiredNames are the names that each container must specify if a quota has them.
var requiredNames = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU,
	corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory,
}

func newPods(list lister) *evaluator {
	return &evaluator{
		resource: podResource, list: list(podResource), matching: podNames, handles: handlesPod, constraints: specifiesAll,
		inScope: podInScope, usage: podUsage, changes: podChanges,
	}
}

// podNames selects the names that pods use.
func podNames(names []corev1.ResourceName) (matching []corev1.ResourceName) {
	for _, name := range names {
		plain, requests := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
		switch {
		case slices.Contains(plainPodNames, name):
		case strings.HasPrefix(plain, corev1.ResourceHugePagesPrefix):
		case requests && (!resourcename.Native(name) || strings.HasPrefix(plain, resourcev1.ResourceDeviceClassPrefix)):
		default:
			continue
		}
		matching = append(matching, name)
	}
	return matching
}

// isExtended reports whether a container's resource counts as requests.NAME.
func isExtended(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) || resourcename.Extended(name)
}

// handlesPod reports whether a write creates a pod, resizes it or moves it to another scope.
func handlesPod(a admission.Attributes) bool {
	switch a.GetSubresource() {
	case "":
		pod, ok := a.GetObject().(*corev1.Pod)
		old, hasOld := a.GetOldObject().(*corev1.Pod)
		return a.GetOperation() == admission.Create || ok && hasOld && isTerminating(old) != isTerminating(pod)
	case "resize":
		return a.GetOperation() == admission.Update
	}
	return false
}

// specifiesAll returns an error if a quota limits cpu or memory, and a container specifies none. Pods with resources of
// their own need not.
func specifiesAll(required []corev1.ResourceName, item runtime.Object) error {
	pod, ok := item.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("%T is not a pod", item)
	}
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		return nil
	}
	var missing []string
	for _, name := range slices.Sorted(slices.Values(quota.Intersection(required, requiredNames))) {
		var without []string
		for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
			if _, ok := computeUsage(c.Resources.Requests, c.Resources.Limits)[name]; !ok {
				without = append(without, c.Name)
			}
		}
		if slices.Sort(without); len(without) > 0 {
			missing = append(missing, fmt.Sprintf("%s for: %s", name, strings.Join(slices.Compact(without), ",")))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("must specify %s", strings.Join(missing, "; "))
	}
	return nil
}

// podUsage counts a pod. One that has ended, or whose time to end is over, counts as an object only.
func podUsage(item runtime.Object) (corev1.ResourceList, error) {
	pod, ok := item.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("%T is not a pod", item)
	}
	used := corev1.ResourceList{podCount: count(1)}
	if hasEnded(pod, time.Now()) {
		return used, nil
	}
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	return quota.Add(used, computeUsage(resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options))),
		nil
}

// computeUsage returns requests and limits by the names that quotas have for them.
func computeUsage(requests, limits corev1.ResourceList) corev1.ResourceList {
	used := corev1.ResourceList{corev1.ResourcePods: count(1)}
	for name, names := range computeNames {
		if request, ok := requests[name]; ok {
			used[name], used[names.requests] = request, request
		}
		if limit, ok := limits[name]; ok {
			used[names.limits] = limit
		}
	}
	for name, request := range requests {
		hugePages := resourcename.HugePages(name)
		if hugePages {
			used[name] = request
		}
		if hugePages || isExtended(name) {
			used[corev1.DefaultResourceRequestsPrefix+name] = request
		}
	}
	return used
}

// hasEnded reports whether a pod uses nothing any more: also one that a lost node does not delete.
func hasEnded(pod *corev1.Pod, now time.Time) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return false
	}
	return now.After(pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second))
}

func isTerminating(pod *corev1.Pod) bool {
	return pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
}

func podInScope(scope corev1.ScopedResourceSelectorRequirement, item runtime.Object) (bool, error) {
	pod, ok := item.(*corev1.Pod)
	if !ok {
		return false, fmt.Errorf("%T is not a pod", item)
	}
	switch scope.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return isTerminating(pod), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !isTerminating(pod), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return pod.Status.QOSClass == corev1.PodQOSBestEffort, nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return pod.Status.QOSClass != corev1.PodQOSBestEffort, nil
	case corev1.ResourceQuotaScopePriorityClass:
		return selects(scope, pod.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return refersToNamespaces(pod.Spec.Affinity), nil
	}
	return false, nil
}

// selects reports whether a scope with a selector matches one of the values, or none of them if there are none.
func selects(scope corev1.ScopedResourceSelectorRequirement, values ...string) (bool, error) {
	operator, ok := map[corev1.ScopeSelectorOperator]selection.Operator{
		corev1.ScopeSelectorOpIn: selection.In, corev1.ScopeSelectorOpNotIn: selection.NotIn,
		corev1.ScopeSelectorOpExists: selection.Exists, corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
	}[scope.Operator]
	if !ok {
		return false, fmt.Errorf("failed to parse and convert selector: %q is not a valid scope selector operator",
			scope.Operator)
	}
	requirement, err := labels.NewRequirement(string(scope.ScopeName), operator, scope.Values)
	if err != nil {
		return false, fmt.Errorf("failed to parse and convert selector: %w", err)
	}
	values = slices.DeleteFunc(values, func(value string) bool { return value == "" })
	if len(values) == 0 {
		return requirement.Matches(labels.Set{}), nil
	}
	return slices.ContainsFunc(values, func(value string) bool {
		return requirement.Matches(labels.Set{string(scope.ScopeName): value})
	}), nil
}

// refersToNamespaces reports whether an affinity is to pods in other namespaces, or against them.
func refersToNamespaces(affinity *corev1.Affinity) bool {
	if affinity == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	var weighted []corev1.WeightedPodAffinityTerm
	if to := affinity.PodAffinity; to != nil {
		terms, weighted = append(terms, to.RequiredDuringSchedulingIgnoredDuringExecution...), append(weighted,
			to.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if against := affinity.PodAntiAffinity; against != nil {
		terms, weighted = append(terms, against.RequiredDuringSchedulingIgnoredDuringExecution...), append(weighted,
			against.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	for _, w := range weighted {
		terms = append(terms, w.PodAffinityTerm)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool {
		return len(t.Namespaces) > 0 ||
			t.NamespaceSelector != nil
	})
}

// podChanges reports whether a pod has ended, has other resources, or has moved to another scope.
func podChanges(before, after runtime.Object) bool {
	old, pod := before.(*corev1.Pod), after.(*corev1.Pod)
	now := time.Now()
	return isTerminating(old) != isTerminating(pod) || hasEnded(pod, now) && !hasEnded(old, now) ||
		!equality.Semantic.DeepEqual(resourcesOf(old), resourcesOf(pod))
}

// resourcesOf returns the resources of a pod and its containers, in the specification and in the status.
func resourcesOf(pod *corev1.Pod) (all []*corev1.ResourceRequirements) {
	all = append(all, pod.Spec.Resources)
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		all = append(all, &c.Resources)
	}
	for _, s := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		all = append(all, s.Resources)
	}
	return all
}
