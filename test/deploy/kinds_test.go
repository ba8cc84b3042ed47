package deploy

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// serviceMonitors is the Prometheus operator's resource, without its schema.
const serviceMonitors = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {plural: servicemonitors, singular: servicemonitor, kind: ServiceMonitor}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// The manifests of the charts, with all of their settings, are applied without an error, and again without a change, to
// kube-apiserver and to keepwatch serve, which has no policies, and changes the time in a StatefulSet's managedFields.
func TestChartsApply(t *testing.T) {
	for name, server := range map[string]struct {
		start    func(testing.TB, ...string) *peer.Server
		policies bool
	}{"kube-apiserver": {peer.Kubernetes, true}, "keepwatch serve": {peer.Serve, false}} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, server.start(t), "shop", "stock")
			c.apply(objects(t, "servicemonitors", serviceMonitors))
			c.eventually("service monitors are known", func() bool {
				c.mapper.Reset()
				_, err := c.mapper.RESTMapping(objects(t, "",
					"apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor")[0].GroupVersionKind().GroupKind(), "v1")
				return err == nil
			})
			for chart, all := range settings {
				for _, which := range []string{"defaults", "all", "postgres", "brokers", "http"} {
					if v, ok := all[which]; ok {
						t.Logf("%s with %s", chart, which)
						all := manifests(t, chart, v)
						if !server.policies {
							all = slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool {
								return o.GroupVersionKind().Group == "admissionregistration.k8s.io"
							})
						}
						all = besideDefaults(chart, which, all)
						c.applyTwice(all)
					}
				}
			}
		})
	}
}

// besideDefaults renames the StatefulSet of settings without the default volume: templates of volume claims can't be
// changed.
func besideDefaults(chart, which string, all []*unstructured.Unstructured) []*unstructured.Unstructured {
	if chart != "keepwatch-sync" || which == "defaults" || which == "class" {
		return all
	}
	for _, o := range all {
		if o.GetKind() == "StatefulSet" {
			o.SetName(o.GetName() + "-" + which)
		}
	}
	return all
}

// applyTwice applies objects, and checks that to apply them again changes nothing.
func (c *cluster) applyTwice(all []*unstructured.Unstructured) {
	c.Helper()
	c.apply(all)
	before := c.versions(all)
	c.apply(all)
	if after := c.versions(all); !slices.Equal(before, after) {
		c.Errorf("applied again: %v, before %v", after, before)
	}
}

// versions returns the resource versions of objects.
func (c *cluster) versions(all []*unstructured.Unstructured) (found []string) {
	c.Helper()
	for _, o := range all {
		mapping, err := c.mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
		c.must(err)
		stored, err := c.dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace()).Get(c.Context(), o.GetName(),
			metav1.GetOptions{})
		c.must(err)
		found = append(found, stored.GetResourceVersion())
	}
	return found
}

// Charts have what their documentation says.
func TestKinds(t *testing.T) {
	proxy := []string{"ClusterRole", "ClusterRoleBinding", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service",
		"ServiceAccount"}
	for _, c := range []struct {
		chart, which string
		want         []string
	}{
		{"keepwatch-proxy", "defaults", proxy},
		{"keepwatch-proxy", "all", append([]string{"ConfigMap", "ConfigMap", "MutatingAdmissionPolicy",
			"MutatingAdmissionPolicyBinding", "ServiceMonitor"}, proxy...)},
		{"keepwatch-sync", "defaults", []string{"ClusterRole", "ClusterRoleBinding", "NetworkPolicy", "Secret", "Service",
			"ServiceAccount", "StatefulSet"}},
		{"keepwatch-sync", "namespaced", []string{"ClusterRole", "ClusterRoleBinding", "NetworkPolicy", "Role", "Role",
			"RoleBinding", "RoleBinding", "Secret", "Service", "ServiceAccount", "StatefulSet"}},
		{"keepwatch-sync", "postgres", []string{"ClusterRole", "ClusterRoleBinding", "NetworkPolicy", "PodDisruptionBudget",
			"Role", "RoleBinding", "Secret", "Service", "ServiceAccount", "ServiceMonitor", "StatefulSet"}},
		{"keepwatch-sync", "brokers", []string{"ClusterRole", "ClusterRoleBinding", "NetworkPolicy", "PodDisruptionBudget",
			"Role", "RoleBinding", "Secret", "Service", "ServiceAccount", "StatefulSet"}},
		{"keepwatch-sync", "http", []string{"ClusterRole", "ClusterRoleBinding", "NetworkPolicy", "Secret", "Service",
			"ServiceAccount", "StatefulSet"}},
	} {
		slices.Sort(c.want)
		if got := kinds(manifests(t, c.chart, settings[c.chart][c.which])); !slices.Equal(got, c.want) {
			t.Errorf("%s with %s: %v", c.chart, c.which, got)
		}
	}
}

// A proxy of one replica is never without a ready pod, and pods that are not ready block no drain.
func TestDisruptions(t *testing.T) {
	for which, want := range map[string]int{"least": 0, "defaults": 1} {
		all := manifests(t, "keepwatch-proxy", settings["keepwatch-proxy"][which])
		update := find[appsv1.Deployment](t, all, "Deployment").Spec.Strategy.RollingUpdate
		if update.MaxUnavailable.IntValue() != want {
			t.Errorf("%s: %v", which, update)
		}
	}
	for chart, which := range map[string]string{"keepwatch-proxy": "defaults", "keepwatch-sync": "postgres"} {
		budget := find[policyv1.PodDisruptionBudget](t, manifests(t, chart, settings[chart][which]), "PodDisruptionBudget")
		if policy := budget.Spec.UnhealthyPodEvictionPolicy; policy == nil || *policy != policyv1.AlwaysAllow {
			t.Errorf("%s: %+v", chart, budget.Spec)
		}
	}
}

// The policies restrict who connects to the pods, and not where these connect to: the port of the API server itself,
// which a policy sees in place of its Service's, is another one in many clusters.
func TestPoliciesOfPods(t *testing.T) {
	for chart := range settings {
		policy := find[networkingv1.NetworkPolicy](t, manifests(t, chart, values{}), "NetworkPolicy").Spec
		if !slices.Equal(policy.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) ||
			len(policy.Egress) > 0 {
			t.Errorf("%s: %+v", chart, policy)
		}
	}
}
