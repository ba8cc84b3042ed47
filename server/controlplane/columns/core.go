package columns

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var coreViews = map[schema.GroupResource]view{
	corev1.Resource("pods"):                   podView.without(UnreadOfPods),
	corev1.Resource("nodes"):                  nodeView,
	corev1.Resource("services"):               serviceView,
	corev1.Resource("endpoints"):              endpointsView,
	corev1.Resource("events"):                 eventView,
	corev1.Resource("persistentvolumes"):      persistentVolumeView,
	corev1.Resource("persistentvolumeclaims"): persistentVolumeClaimView,

	corev1.Resource("namespaces"): show(
		func(namespace *corev1.Namespace) []any {
			return []any{namespace.Name, string(namespace.Status.Phase), age(namespace)}
		},
		nameColumn,
		text("Status", described(corev1.NamespaceStatus{}, "phase")),
		ageColumn,
	),
	corev1.Resource("configmaps"): show(
		func(configMap *corev1.ConfigMap) []any {
			return []any{configMap.Name, int64(len(configMap.Data) + len(configMap.BinaryData)), age(configMap)}
		},
		nameColumn,
		text("Data", described(corev1.ConfigMap{}, "data")),
		ageColumn,
	),
	corev1.Resource("secrets"): show(
		func(secret *corev1.Secret) []any {
			return []any{secret.Name, string(secret.Type), int64(len(secret.Data)), age(secret)}
		},
		nameColumn,
		text("Type", described(corev1.Secret{}, "type")),
		text("Data", described(corev1.Secret{}, "data")),
		ageColumn,
	),
	corev1.Resource("serviceaccounts"): show(
		func(account *corev1.ServiceAccount) []any { return []any{account.Name, age(account)} },
		nameColumn,
		ageColumn,
	),
	corev1.Resource("resourcequotas"): show(resourceQuotaCells,
		nameColumn,
		text("Request", "What is used of each limit on requests and object counts."),
		text("Limit", "What is used of each limit on limits."),
		ageColumn,
	),
	corev1.Resource("replicationcontrollers"): show(
		func(controller *corev1.ReplicationController) []any {
			spec, status := controller.Spec, controller.Status
			template := deref(spec.Template, corev1.PodTemplateSpec{}).Spec
			return []any{
				controller.Name, int64(deref(spec.Replicas, 0)), int64(status.Replicas), int64(status.ReadyReplicas),
				age(controller),
				containerNames(template), containerImages(template), labelsOf(spec.Selector),
			}
		},
		nameColumn,
		integer("Desired", described(corev1.ReplicationControllerSpec{}, "replicas")),
		integer("Current", described(corev1.ReplicationControllerStatus{}, "replicas")),
		integer("Ready", described(corev1.ReplicationControllerStatus{}, "readyReplicas")),
		ageColumn,
		containersColumn,
		imagesColumn,
		wide(text("Selector", described(corev1.ReplicationControllerSpec{}, "selector"))),
	),
	corev1.Resource("podtemplates"): show(
		func(template *corev1.PodTemplate) []any {
			spec := template.Template.Spec
			return []any{template.Name, containerNames(spec), containerImages(spec), labelsOf(template.Template.Labels)}
		},
		nameColumn,
		text("Containers", containersColumn.Description),
		text("Images", imagesColumn.Description),
		text("Pod Labels", "Labels of the pod template."),
	),
}

// resourceQuotaCells shows used/hard of every resource, sorted, limits apart from the rest.
func resourceQuotaCells(quota *corev1.ResourceQuota) []any {
	var requests, limits []string
	for _, resource := range slices.Sorted(maps.Keys(quota.Status.Hard)) {
		used, hard := quota.Status.Used[resource], quota.Status.Hard[resource]
		shown := fmt.Sprintf("%s: %s/%s", resource, used.String(), hard.String())
		if strings.HasPrefix(string(resource), "limits") {
			limits = append(limits, shown)
		} else {
			requests = append(requests, shown)
		}
	}
	return []any{quota.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), age(quota)}
}
