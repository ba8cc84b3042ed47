package limitranges

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// annotation is where a pod names the defaults that it got.
const annotation = "kubernetes.io/limit-ranger"

// setDefaults sets the missing requests and limits of a pod's containers, and names them in an annotation.
func setDefaults(pod *corev1.Pod, limits []corev1.LimitRangeItem) {
	requests, upper := corev1.ResourceList{}, corev1.ResourceList{}
	for _, item := range limits {
		if item.Type == corev1.LimitTypeContainer {
			maps.Copy(requests, item.DefaultRequest)
			maps.Copy(upper, item.Default)
		}
	}
	var changes []string
	set := func(what string, containers []corev1.Container) {
		for i := range containers {
			c := &containers[i]
			if names := fill(&c.Resources.Requests, requests); names != "" {
				changes = append(changes, names+" request for "+what+" "+c.Name)
			}
			if names := fill(&c.Resources.Limits, upper); names != "" {
				changes = append(changes, names+" limit for "+what+" "+c.Name)
			}
		}
	}
	set("container", pod.Spec.Containers)
	set("init container", pod.Spec.InitContainers)
	if len(changes) == 0 {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[annotation] = "LimitRanger plugin set: " + strings.Join(changes, "; ")
}

// fill adds the quantities that a list doesn't have, and returns their names.
func fill(list *corev1.ResourceList, defaults corev1.ResourceList) string {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	var added []string
	for name, quantity := range defaults {
		if _, ok := (*list)[name]; !ok {
			(*list)[name] = quantity.DeepCopy()
			added = append(added, string(name))
		}
	}
	slices.Sort(added)
	return strings.Join(added, ", ")
}
