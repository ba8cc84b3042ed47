package validation

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/testserver"
	"github.com/keepwatch/keepwatch/test/peer"
)

// incomplete are specs of pods that leave out what a server sets.
var incomplete = []string{
	`{resources: {}, containers: [{name: c, image: i, resources: {limits: {cpu: 1, memory: 1Gi}}}]}`,
	`{resources: {limits: {cpu: 1, memory: 1Gi}}, containers: [{name: c, image: i}]}`,
	`{resources: {limits: {cpu: 4}}, containers: [{name: c, image: i, resources: {requests: {cpu: 1, memory: 1Gi}}}, ` +
		`{name: d, image: i}], initContainers: [{name: e, image: i, resources: {requests: {cpu: 2}}}]}`,
	`{resources: {requests: {cpu: 3}}, containers: [{name: c, image: i, resources: {limits: {cpu: 1}}}, ` +
		`{name: d, image: i, resources: {limits: {cpu: 1}}}]}`,
	`{resources: {requests: {cpu: 6}}, containers: [{name: c, image: i, resources: {limits: {cpu: 1}}}], ` +
		`initContainers: [{name: e, image: i, restartPolicy: Always, resources: {limits: {cpu: 5}}}]}`,
	`{resources: {requests: {cpu: 1}}, containers: [{name: c, image: i, resources: {limits: {cpu: 1}}}], ` +
		`initContainers: [{name: e, image: i}]}`,
	`{resources: {requests: {cpu: 1}}, containers: [{name: c, image: i, resources: {limits: {hugepages-2Mi: 2Mi, cpu: 1}}}]}`,
	`{containers: [{name: c, image: i}], affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: ` +
		`[{topologyKey: k, labelSelector: {}, matchLabelKeys: [a, none], mismatchLabelKeys: [b]}]}, podAntiAffinity: ` +
		`{preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: k, ` +
		`labelSelector: {matchLabels: {c: d}}, matchLabelKeys: [a]}}]}}}`,
	`{containers: [{name: c, image: i}], topologySpreadConstraints: [{maxSkew: 1, topologyKey: k, ` +
		`whenUnsatisfiable: DoNotSchedule, labelSelector: {}, matchLabelKeys: [a]}]}`,
}

// Both servers complete the resources, the affinities and the spread of a pod alike, and give it the same class.
func TestCompletedPods(t *testing.T) {
	both := latestSides(t)
	for i, spec := range incomplete {
		var completed []any
		for _, side := range both {
			pod := object(t, "Pod", fmt.Sprintf("completed-%d", i), `{metadata: {labels: {a: b, b: c}}, spec: `+spec+`}`)
			created, err := client(side, "Pod").Create(t.Context(), pod, metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("%s: %v", spec, err)
			}
			of := func(path ...string) any { v, _, _ := unstructured.NestedFieldNoCopy(created.Object, path...); return v }
			completed = append(completed, []any{of("spec", "resources"), of("spec", "affinity"),
				of("spec", "topologySpreadConstraints"), of("status", "qosClass")})
		}
		if diff := cmp.Diff(completed[0], completed[1]); diff != "" {
			t.Errorf("%s (- kube-apiserver, + testserver):\n%s", spec, diff)
		}
	}
}

// unserved are the resources of kube-apiserver v1.37 that a test server does not have: docs/serve.md lists them.
var unserved = []string{
	"certificates.k8s.io/v1 clustertrustbundles", "certificates.k8s.io/v1 podcertificaterequests",
	"certificates.k8s.io/v1 podcertificaterequests/status", "networking.k8s.io/v1 ipaddresses",
	"networking.k8s.io/v1 servicecidrs", "networking.k8s.io/v1 servicecidrs/status",
	"resource.k8s.io/v1 devicetaintrules", "resource.k8s.io/v1 devicetaintrules/status",
	"storage.k8s.io/v1 csinodes/status", "storage.k8s.io/v1 volumeattributesclasses",
	"v1 componentstatuses", "v1 nodes/proxy", "v1 pods/ephemeralcontainers", "v1 pods/proxy", "v1 pods/resize",
	"v1 services/proxy",
}

// A test server has all resources of kube-apiserver but these.
func TestUnservedResources(t *testing.T) {
	own := servedBy(t, testserver.New(t).Config())
	missing := slices.DeleteFunc(servedBy(t, peer.LatestKubernetes(t).Config()), func(resource string) bool {
		return slices.Contains(own, resource)
	})
	if diff := cmp.Diff(unserved, missing); diff != "" {
		t.Errorf("- listed, + missing:\n%s", diff)
	}
}

// servedBy returns the versions and names of a server's resources.
func servedBy(t *testing.T, config *rest.Config) (names []string) {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		for _, r := range list.APIResources {
			names = append(names, list.GroupVersion+" "+r.Name)
		}
	}
	slices.Sort(names)
	return names
}
