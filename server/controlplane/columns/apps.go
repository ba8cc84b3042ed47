package columns

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var appsViews = map[schema.GroupResource]view{
	appsv1.Resource("deployments"): show(
		func(deployment *appsv1.Deployment) []any {
			spec, status := deployment.Spec, deployment.Status
			return []any{
				deployment.Name, fmt.Sprintf("%d/%d", status.ReadyReplicas, deref(spec.Replicas, 0)),
				int64(status.UpdatedReplicas), int64(status.AvailableReplicas), age(deployment),
				containerNames(spec.Template.Spec), containerImages(spec.Template.Spec), selectorOf(spec.Selector),
			}
		},
		nameColumn,
		text("Ready", described(appsv1.DeploymentStatus{}, "readyReplicas")),
		text("Up-to-date", described(appsv1.DeploymentStatus{}, "updatedReplicas")),
		text("Available", described(appsv1.DeploymentStatus{}, "availableReplicas")),
		ageColumn,
		containersColumn,
		imagesColumn,
		wide(text("Selector", described(appsv1.DeploymentSpec{}, "selector"))),
	),
	appsv1.Resource("replicasets"): show(
		func(set *appsv1.ReplicaSet) []any {
			spec, status := set.Spec, set.Status
			return []any{
				set.Name, int64(deref(spec.Replicas, 0)), int64(status.Replicas), int64(status.ReadyReplicas), age(set),
				containerNames(spec.Template.Spec), containerImages(spec.Template.Spec), selectorOf(spec.Selector),
			}
		},
		nameColumn,
		integer("Desired", described(appsv1.ReplicaSetSpec{}, "replicas")),
		integer("Current", described(appsv1.ReplicaSetStatus{}, "replicas")),
		integer("Ready", described(appsv1.ReplicaSetStatus{}, "readyReplicas")),
		ageColumn,
		containersColumn,
		imagesColumn,
		wide(text("Selector", described(appsv1.ReplicaSetSpec{}, "selector"))),
	),
	appsv1.Resource("statefulsets"): show(
		func(set *appsv1.StatefulSet) []any {
			template := set.Spec.Template.Spec
			return []any{
				set.Name, fmt.Sprintf("%d/%d", set.Status.ReadyReplicas, deref(set.Spec.Replicas, 0)), age(set),
				containerNames(template), containerImages(template),
			}
		},
		nameColumn,
		text("Ready", described(appsv1.StatefulSetStatus{}, "readyReplicas")),
		ageColumn,
		containersColumn,
		imagesColumn,
	),
	appsv1.Resource("daemonsets"): show(
		func(set *appsv1.DaemonSet) []any {
			status, template := set.Status, set.Spec.Template.Spec
			return []any{
				set.Name, int64(status.DesiredNumberScheduled), int64(status.CurrentNumberScheduled), int64(status.NumberReady),
				int64(status.UpdatedNumberScheduled), int64(status.NumberAvailable), labelsOf(template.NodeSelector), age(set),
				containerNames(template), containerImages(template), selectorOf(set.Spec.Selector),
			}
		},
		nameColumn,
		integer("Desired", described(appsv1.DaemonSetStatus{}, "desiredNumberScheduled")),
		integer("Current", described(appsv1.DaemonSetStatus{}, "currentNumberScheduled")),
		integer("Ready", described(appsv1.DaemonSetStatus{}, "numberReady")),
		integer("Up-to-date", described(appsv1.DaemonSetStatus{}, "updatedNumberScheduled")),
		integer("Available", described(appsv1.DaemonSetStatus{}, "numberAvailable")),
		text("Node Selector", described(corev1.PodSpec{}, "nodeSelector")),
		ageColumn,
		containersColumn,
		imagesColumn,
		wide(text("Selector", described(appsv1.DaemonSetSpec{}, "selector"))),
	),
	appsv1.Resource("controllerrevisions"): show(
		func(revision *appsv1.ControllerRevision) []any {
			controller := none
			if owner := metav1.GetControllerOf(revision); owner != nil {
				group := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
				controller = strings.ToLower(group.String()) + "/" + owner.Name
			}
			return []any{revision.Name, controller, revision.Revision, age(revision)}
		},
		nameColumn,
		text("Controller", "The object that controls the revision."),
		text("Revision", described(appsv1.ControllerRevision{}, "revision")),
		ageColumn,
	),
}
