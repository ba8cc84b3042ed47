package controlplane

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// state has the objects of a story.
type state struct {
	namespaces  []*corev1.Namespace
	nodes       []*corev1.Node
	deployments []*appsv1.Deployment
	replicaSets []*appsv1.ReplicaSet
	pods        []*corev1.Pod
	services    []*corev1.Service
	slices      []*discoveryv1.EndpointSlice
	budgets     []*policyv1.PodDisruptionBudget
}

// informed returns the function that reads the state from client-go's informers, which run until ctx is done.
func informed(ctx context.Context, client kubernetes.Interface) (func() (state, error), error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	namespaces := factory.Core().V1().Namespaces().Lister()
	nodes := factory.Core().V1().Nodes().Lister()
	deployments := factory.Apps().V1().Deployments().Lister()
	replicaSets := factory.Apps().V1().ReplicaSets().Lister()
	pods := factory.Core().V1().Pods().Lister()
	services := factory.Core().V1().Services().Lister()
	slices := factory.Discovery().V1().EndpointSlices().Lister()
	budgets := factory.Policy().V1().PodDisruptionBudgets().Lister()
	factory.Start(ctx.Done())
	for informer, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("the informer of %v is not synchronized", informer)
		}
	}
	return func() (s state, err error) {
		read(&s.namespaces, &err, namespaces.List)
		read(&s.nodes, &err, nodes.List)
		read(&s.deployments, &err, deployments.List)
		read(&s.replicaSets, &err, replicaSets.List)
		read(&s.pods, &err, pods.List)
		read(&s.services, &err, services.List)
		read(&s.slices, &err, slices.List)
		read(&s.budgets, &err, budgets.List)
		return s, err
	}, nil
}

// read stores what list returns, unless an earlier one failed.
func read[T any](into *[]T, failed *error, list func(labels.Selector) ([]T, error)) {
	if *failed == nil {
		*into, *failed = list(labels.Everything())
	}
}

// informedResources are the resources of a state.
var informedResources = []schema.GroupResource{
	{Resource: "namespaces"}, {Resource: "nodes"}, {Group: "apps", Resource: "deployments"},
	{Group: "apps", Resource: "replicasets"},
	{Resource: "pods"}, {Resource: "services"}, {Group: "discovery.k8s.io", Resource: "endpointslices"},
	{Group: "policy", Resource: "poddisruptionbudgets"},
}

// versions returns the resource versions of all objects.
func (s state) versions() map[string]string {
	versions := map[string]string{}
	addVersions(versions, "namespaces", s.namespaces)
	addVersions(versions, "nodes", s.nodes)
	addVersions(versions, "deployments", s.deployments)
	addVersions(versions, "replicasets", s.replicaSets)
	addVersions(versions, "pods", s.pods)
	addVersions(versions, "services", s.services)
	addVersions(versions, "endpointslices", s.slices)
	addVersions(versions, "poddisruptionbudgets", s.budgets)
	return versions
}

func addVersions[T metav1.Object](to map[string]string, resource string, all []T) {
	for _, o := range all {
		to[resource+" "+key(o)] = o.GetResourceVersion()
	}
}

// describe describes the state without names and times that differ from run to run.
func (s state) describe() []string {
	var lines []string
	line := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, n := range s.namespaces {
		if !system(n.Name) {
			line("namespace %s: %s", n.Name, n.Status.Phase)
		}
	}
	for _, n := range s.nodes {
		line("node %s: %s", n.Name, describeNode(n))
	}
	for _, d := range s.deployments {
		line("deployment %s: %s", key(d), describeDeployment(d))
	}
	for _, r := range s.replicaSets {
		owner := "nothing"
		if by := metav1.GetControllerOf(r); by != nil {
			owner = by.Name
		}
		line("replica set %s/%s: revision %s, %d pods, owned by %s", r.Namespace, r.Labels[appLabel],
			r.Annotations["deployment.kubernetes.io/revision"], r.Status.ReadyReplicas, owner)
	}
	for group, n := range s.podGroups() {
		line("pods %s: %d %s", group.app, n, group.what)
	}
	endpoints := s.endpoints()
	for _, v := range s.services {
		if !system(v.Namespace) {
			line("service %s: %d endpoints", key(v), endpoints[key(v)])
		}
	}
	for _, b := range s.budgets {
		line("disruption budget %s: %d healthy of %d", key(b), b.Status.CurrentHealthy, b.Status.ExpectedPods)
	}
	slices.Sort(lines)
	return lines
}

func describeNode(n *corev1.Node) string {
	switch {
	case n.Spec.Unschedulable:
		return "unschedulable"
	case len(n.Spec.Taints) > 0:
		return fmt.Sprintf("tainted %v", n.Spec.Taints)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return "ready"
		}
	}
	return "not ready"
}

func describeDeployment(d *appsv1.Deployment) string {
	image, n := d.Spec.Template.Spec.Containers[0].Image, *d.Spec.Replicas
	switch {
	case d.DeletionTimestamp != nil:
		return "being deleted"
	case d.Status.ObservedGeneration < d.Generation:
		return "not observed"
	case d.Status.Replicas != n || d.Status.UpdatedReplicas != n || d.Status.AvailableReplicas != n:
		return fmt.Sprintf("rolling out %s: %d pods, %d updated, %d available", image, d.Status.Replicas,
			d.Status.UpdatedReplicas, d.Status.AvailableReplicas)
	}
	return fmt.Sprintf("%d available of %s", n, image)
}

// podGroup is an app's pods in one condition.
type podGroup struct{ app, what string }

func (s state) podGroups() map[podGroup]int {
	groups := map[podGroup]int{}
	for _, p := range s.pods {
		what := string(p.Status.Phase) + " on " + p.Spec.NodeName
		switch {
		case p.DeletionTimestamp != nil:
			what = "being deleted"
		case p.Spec.NodeName == "":
			what = "not scheduled"
		case running(p):
			what = "run " + p.Spec.Containers[0].Image
		}
		groups[podGroup{p.Namespace + "/" + p.Labels[appLabel], what}]++
	}
	return groups
}

// running reports whether a pod runs and is ready.
func running(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning {
		return false
	}
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// endpoints counts the ready endpoints of each service that are running pods with that address.
func (s state) endpoints() map[string]int {
	addresses := map[types.UID]string{}
	for _, p := range s.pods {
		if running(p) {
			addresses[p.UID] = p.Status.PodIP
		}
	}
	counts := map[string]int{}
	for _, slice := range s.slices {
		for _, e := range slice.Endpoints {
			if e.TargetRef != nil && e.Conditions.Ready != nil && *e.Conditions.Ready &&
				e.Addresses[0] == addresses[e.TargetRef.UID] {
				counts[slice.Namespace+"/"+slice.Labels[discoveryv1.LabelServiceName]]++
			}
		}
	}
	return counts
}

func key(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// system reports whether a namespace is not the story's.
func system(namespace string) bool {
	return namespace == metav1.NamespaceDefault || len(namespace) > 5 && namespace[:5] == "kube-"
}
