package quotas

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// evaluatorOf returns the evaluator of a resource over some objects.
func evaluatorOf(t *testing.T, of schema.GroupResource, objects ...runtime.Object) quota.Evaluator {
	t.Helper()
	all := evaluators(func(schema.GroupResource) generic.ListFuncByNamespace {
		return func(string) ([]runtime.Object, error) { return objects, nil }
	})
	i := slices.IndexFunc(all, func(e quota.Evaluator) bool { return e.GroupResource() == of })
	if i < 0 {
		t.Fatalf("%s have no evaluator", of)
	}
	return all[i]
}

func describe(list corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		parts = append(parts, fmt.Sprintf("%s=%s", name, quantity.String()))
	}
	return strings.Join(parts, " ")
}

func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func container(name string, requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

// What objects use, by the names that quotas have for it.
func TestUsage(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	long := metav1.NewTime(time.Now().Add(-time.Hour))
	for name, test := range map[string]struct {
		object runtime.Object
		want   string
	}{
		"a pod without resources": {&corev1.Pod{}, "count/pods=1 pods=1"},
		"the largest of init containers and the sum of the others": {&corev1.Pod{Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{container("i", quantities("cpu", "3"), nil)},
			Containers: []corev1.Container{container("a", quantities("cpu", "1", "memory", "1Gi"),
				quantities("memory", "2Gi")), container("b", quantities("cpu", "1"), quantities("memory", "1Gi"))},
		}}, "count/pods=1 cpu=3 limits.memory=3Gi memory=1Gi pods=1 requests.cpu=3 requests.memory=1Gi"},
		"a sidecar": {&corev1.Pod{Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "s", RestartPolicy: &always,
				Resources: corev1.ResourceRequirements{Requests: quantities("cpu", "1")}}},
			Containers: []corev1.Container{container("a", quantities("cpu", "1"), nil)},
			Overhead:   quantities("cpu", "500m"),
		}}, "count/pods=1 cpu=2500m pods=1 requests.cpu=2500m"},
		"a pod's own resources": {&corev1.Pod{Spec: corev1.PodSpec{
			Resources:  &corev1.ResourceRequirements{Requests: quantities("cpu", "4")},
			Containers: []corev1.Container{container("a", quantities("cpu", "1"), nil)},
		}}, "count/pods=1 cpu=4 pods=1 requests.cpu=4"},
		"other resources": {&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
			container("a", quantities("ephemeral-storage", "1Gi", "example.com/gpu", "2", "hugepages-2Mi", "4Mi",
				"kubernetes.io/own", "1"), quantities("ephemeral-storage", "2Gi", "example.com/gpu", "2")),
		}}}, "count/pods=1 ephemeral-storage=1Gi hugepages-2Mi=4Mi limits.ephemeral-storage=2Gi pods=1 requests.ephemeral-storage=1Gi requests.example.com/gpu=2 requests.hugepages-2Mi=4Mi"},
		"a failed pod": {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}, "count/pods=1"},
		"a pod that ends": {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now()),
			DeletionGracePeriodSeconds: new(int64(30))}}, "count/pods=1 pods=1"},
		"a pod of a lost node": {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &long,
			DeletionGracePeriodSeconds: new(int64(30))}}, "count/pods=1"},
		"a service with an IP": {&corev1.Service{Spec: corev1.ServiceSpec{Ports: make([]corev1.ServicePort, 2)}},
			"count/services=1 services=1 services.loadbalancers=0 services.nodeports=0"},
		"a service on nodes": {&corev1.Service{Spec: corev1.ServiceSpec{Type: "NodePort",
			Ports: make([]corev1.ServicePort, 2)}}, "count/services=1 services=1 services.loadbalancers=0 services.nodeports=2"},
		"a load balancer": {&corev1.Service{Spec: corev1.ServiceSpec{Type: "LoadBalancer",
			Ports: make([]corev1.ServicePort, 2)}}, "count/services=1 services=1 services.loadbalancers=1 services.nodeports=2"},
		"without node ports": {&corev1.Service{Spec: corev1.ServiceSpec{Type: "LoadBalancer",
			AllocateLoadBalancerNodePorts: new(false), Ports: []corev1.ServicePort{{}, {NodePort: 30000}}}},
			"count/services=1 services=1 services.loadbalancers=1 services.nodeports=1"},
		"a claim without class": {claimOf("1Gi", "", ""),
			"count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=1Gi"},
		"a claim of a class": {claimOf("1.5", "gold", ""),
			"count/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/requests.storage=2 persistentvolumeclaims=1 requests.storage=2"},
		"a claim that shrinks": {claimOf("1Gi", "", "2Gi"),
			"count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=2Gi"},
		"a claim that has grown": {claimOf("3Gi", "", "2Gi"),
			"count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=3Gi"},
	} {
		of := podResource
		switch test.object.(type) {
		case *corev1.Service:
			of = serviceResource
		case *corev1.PersistentVolumeClaim:
			of = claimResource
		}
		used, err := evaluatorOf(t, of).Usage(test.object)
		if got := describe(used); err != nil || got != test.want {
			t.Errorf("%s uses\n%s, want\n%s: %v", name, got, test.want, err)
		}
	}
}

func claimOf(size, class, allocated string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{Requests: quantities("storage", size)},
	}}
	if allocated != "" {
		claim.Status.AllocatedResources = quantities("storage", allocated)
	}
	return claim
}

// Which pods and claims a quota with scopes counts.
func TestScopes(t *testing.T) {
	pods := []runtime.Object{}
	for _, pod := range []corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Status: corev1.PodStatus{QOSClass: corev1.PodQOSBestEffort}},
		{ObjectMeta: metav1.ObjectMeta{Name: "ends"}, Spec: corev1.PodSpec{ActiveDeadlineSeconds: new(int64(1)),
			PriorityClassName: "low"}, Status: corev1.PodStatus{QOSClass: corev1.PodQOSBurstable}},
		{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Spec: corev1.PodSpec{PriorityClassName: "high",
			Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
					{PodAffinityTerm: corev1.PodAffinityTerm{Namespaces: []string{"other"}}}},
			}}}, Status: corev1.PodStatus{QOSClass: corev1.PodQOSGuaranteed}},
	} {
		pods = append(pods, &pod)
	}
	changing := claimOf("1Gi", "", "")
	changing.Spec.VolumeAttributesClassName, changing.Status.CurrentVolumeAttributesClassName = new("fast"), new("slow")
	claims := []runtime.Object{claimOf("1Gi", "", ""), changing}
	type requirement = corev1.ScopedResourceSelectorRequirement
	for _, test := range []struct {
		scope requirement
		want  string
	}{
		{requirement{ScopeName: corev1.ResourceQuotaScopeTerminating, Operator: corev1.ScopeSelectorOpExists}, "pods=1"},
		{requirement{ScopeName: corev1.ResourceQuotaScopeNotTerminating, Operator: corev1.ScopeSelectorOpExists}, "pods=2"},
		{requirement{ScopeName: corev1.ResourceQuotaScopeBestEffort, Operator: corev1.ScopeSelectorOpExists}, "pods=1"},
		{requirement{ScopeName: corev1.ResourceQuotaScopeNotBestEffort, Operator: corev1.ScopeSelectorOpExists}, "pods=2"},
		{requirement{ScopeName: corev1.ResourceQuotaScopeCrossNamespacePodAffinity, Operator: corev1.ScopeSelectorOpExists},
			"pods=1"},
		{requirement{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpExists}, "pods=2"},
		{requirement{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpDoesNotExist},
			"pods=1"},
		{requirement{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn,
			Values: []string{"low", "other"}}, "pods=1"},
		{requirement{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpNotIn,
			Values: []string{"low"}}, "pods=2"},
		{requirement{ScopeName: corev1.ResourceQuotaScopeVolumeAttributesClass, Operator: corev1.ScopeSelectorOpIn,
			Values: []string{"fast"}}, "persistentvolumeclaims=1"},
		{requirement{ScopeName: corev1.ResourceQuotaScopeVolumeAttributesClass, Operator: corev1.ScopeSelectorOpIn,
			Values: []string{"slow"}}, "persistentvolumeclaims=1"},
		{requirement{ScopeName: corev1.ResourceQuotaScopeVolumeAttributesClass, Operator: corev1.ScopeSelectorOpDoesNotExist},
			"persistentvolumeclaims=1"},
		{requirement{ScopeName: "Unknown", Operator: corev1.ScopeSelectorOpExists}, "pods=0"},
	} {
		name, _, _ := strings.Cut(test.want, "=")
		e := evaluatorOf(t, podResource, pods...)
		if name == "persistentvolumeclaims" {
			e = evaluatorOf(t, claimResource, claims...)
		}
		stats, err := e.UsageStats(quota.UsageStatsOptions{
			Resources:     []corev1.ResourceName{corev1.ResourceName(name)},
			ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{test.scope}},
		})
		used := quota.Mask(stats.Used, []corev1.ResourceName{corev1.ResourceName(name)})
		if got := describe(used); err != nil || got != test.want {
			t.Errorf("%+v counts %s, want %s: %v", test.scope, got, test.want, err)
		}
	}
	if _, err := selects(requirement{Operator: "Like"}, "a"); err == nil {
		t.Error("an operator that does not exist is accepted")
	}
}

// Each name that a quota may limit belongs to the evaluator of one resource.
func TestNames(t *testing.T) {
	all := evaluators(func(schema.GroupResource) generic.ListFuncByNamespace { return nil })
	for name, want := range map[corev1.ResourceName]string{
		"pods": "pods", "count/pods": "pods", "cpu": "pods", "requests.cpu": "pods", "limits.memory": "pods",
		"limits.ephemeral-storage": "pods",
		"requests.example.com/gpu": "pods", "requests.hugepages-2Mi": "pods", "hugepages-1Gi": "pods",
		"requests.deviceclass.resource.kubernetes.io/gpu": "pods",
		"services.nodeports":                              "services", "count/services": "services",
		"requests.storage": "persistentvolumeclaims",
		"gold.storageclass.storage.k8s.io/requests.storage": "persistentvolumeclaims",
		"count/persistentvolumeclaims":                      "persistentvolumeclaims",
		"secrets":                                           "secrets", "count/configmaps": "configmaps",
		"resourcequotas":         "resourcequotas",
		"replicationcontrollers": "replicationcontrollers",
		"example.com/gpu":        "", "limits.example.com/gpu": "", "requests.limits.cpu": "",
		"gold.storageclass.storage.k8s.io/other": "", "count/deployments.apps": "",
	} {
		var matching []string
		for _, e := range all {
			if len(e.MatchingResources([]corev1.ResourceName{name})) > 0 {
				matching = append(matching, e.GroupResource().String())
			}
		}
		if got := strings.Join(matching, ","); got != want {
			t.Errorf("%s belongs to %q, want %q", name, got, want)
		}
	}
}

// A pod must specify what the quota limits, in each container, unless the pod as a whole does.
func TestConstraints(t *testing.T) {
	e := evaluatorOf(t, podResource)
	required := []corev1.ResourceName{"requests.cpu", "limits.memory", "pods", "requests.ephemeral-storage"}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{container("init", nil, nil)},
		Containers: []corev1.Container{container("b", quantities("cpu", "1"), nil),
			container("a", nil, quantities("memory", "1Gi"))},
	}}
	if err := e.Constraints(required, pod); err == nil ||
		err.Error() != "must specify limits.memory for: b,init; requests.cpu for: a,init" {
		t.Errorf("the error is %v", err)
	}
	pod.Spec.Resources = &corev1.ResourceRequirements{Requests: quantities("cpu", "1")}
	if err := e.Constraints(required, pod); err != nil {
		t.Errorf("with resources of the pod, the error is %v", err)
	}
}
