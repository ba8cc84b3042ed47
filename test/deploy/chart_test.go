package deploy

import (
	"reflect"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// settings are the values with which the charts are tested.
var settings = map[string]map[string]values{
	"keepwatch-proxy": {
		"defaults": {},
		"all": {
			"impersonate": true, "serviceMonitor": values{"enabled": true}, "cache": []any{"pods", "secrets",
				"widgets.example.com"},
			"personal": values{"enabled": true, "annotate": true, "groups": []any{"devs", "ops"}},
			"redirect": values{"enabled": true, "caBundle": authority, "namespaces": []any{"shop", "stock"}},
		},
		"least": {"replicas": 1, "state": values{"enabled": false}},
	},
	"keepwatch-sync": {
		"defaults": {},
		"postgres": {
			"config": values{"to": "postgres://sync@db/kubernetes", "maxSize": "20Gi", "resources": []any{
				values{"resource": "pods"}, values{"resource": "deployments.v1.apps", "metadataOnly": true}}},
			"passwordSecret": values{"name": "postgres"}, "serviceMonitor": values{"enabled": true},
		},
		"brokers": {
			"config": values{
				"sinks": []any{
					values{"to": "kafka://kafka:9092/k8s.{resource}"}, values{"name": "audit",
						"to": "nats://nats/AUDIT?creds=/secrets/nats.creds"},
					values{"to": "postgres://sync@db/kubernetes", "retention": "24h"},
				},
				"resources": []any{values{"resource": "pods"}, values{"resource": "*.example.com"}},
			},
			"secretFiles": values{"name": "sinks"},
		},
		"http": {"config": values{"to": "https://events.example.com/in", "state": "/data/state", "mode": "batched",
			"signingKey": "/secrets/key"}},
		"everything": {"config": values{"resources": []any{values{"resource": "*"}}}},
		"class":      {"storage": values{"className": "fast"}},
		"namespaced": {"config": values{"resources": []any{values{"resource": "pods", "namespace": "shop"},
			values{"resource": "configmaps", "namespace": "stock"}}}},
	},
}

const authority = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

// helm lint has nothing to say except that the charts have no icon.
func TestLint(t *testing.T) {
	for name, all := range settings {
		for which, v := range all {
			for _, m := range lint.RunAll(chartDir(name), v, installed).Messages {
				if m.Severity >= support.WarningSev || !strings.Contains(m.Err.Error(), "icon") {
					t.Errorf("%s with %s: %v", name, which, m)
				}
			}
		}
	}
}

// Two releases may have one name, in two namespaces: neither has an object of the other's.
func TestReleasesOfOneName(t *testing.T) {
	for name, all := range settings {
		chart, err := loader.LoadDir(chartDir(name))
		if err != nil {
			t.Fatal(err)
		}
		for which, v := range all {
			found := map[string]bool{}
			for _, namespace := range []string{"a", "b"} {
				files, err := renderChart(chart, name, namespace, v)
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range parsed(t, files) {
					what := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
					if found[what] {
						t.Errorf("%s with %s: both have %s", name, which, what)
					}
					found[what] = true
				}
			}
		}
	}
}

// Values say where the pods run, with which credentials their image is pulled, and with which other flags.
func TestPods(t *testing.T) {
	v := values{
		"extraArgs":        []any{"--drop=a, b"},
		"imagePullSecrets": []any{values{"name": "registry"}}, "nodeSelector": values{"disk": "fast"},
		"tolerations": []any{values{"key": "infra", "operator": "Exists"}}, "priorityClassName": "system-cluster-critical",
		"affinity": values{"nodeAffinity": values{"requiredDuringSchedulingIgnoredDuringExecution": values{
			"nodeSelectorTerms": []any{values{"matchFields": []any{values{"key": "metadata.name", "operator": "In",
				"values": []any{"n"}}}}}}}},
	}
	pods := map[string]corev1.PodSpec{
		"keepwatch-proxy": find[appsv1.Deployment](t, manifests(t, "keepwatch-proxy", v), "Deployment").Spec.Template.Spec,
		"keepwatch-sync":  find[appsv1.StatefulSet](t, manifests(t, "keepwatch-sync", v), "StatefulSet").Spec.Template.Spec,
	}
	named := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}
	node := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{named}}}}
	for name, pod := range pods {
		got := corev1.PodSpec{ImagePullSecrets: pod.ImagePullSecrets, NodeSelector: pod.NodeSelector,
			Tolerations:       pod.Tolerations,
			PriorityClassName: pod.PriorityClassName, Affinity: pod.Affinity}
		want := corev1.PodSpec{
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}}, NodeSelector: map[string]string{"disk": "fast"},
			Tolerations:       []corev1.Toleration{{Key: "infra", Operator: corev1.TolerationOpExists}},
			PriorityClassName: "system-cluster-critical",
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: node}},
		}
		if args := pod.Containers[0].Args; !reflect.DeepEqual(got, want) || args[len(args)-1] != "--drop=a, b" {
			t.Errorf("%s: %+v, %q", name, got, args)
		}
	}
}

// Values that would install something that does not work are refused.
func TestWrongValues(t *testing.T) {
	for _, c := range []struct {
		chart string
		v     values
		want  string
	}{
		{"keepwatch-proxy", values{"cache": []any{}}, "cache"},
		{"keepwatch-proxy", values{"cache": []any{"*"}}, "cache"},
		{"keepwatch-proxy", values{"cache": []any{"pods/log"}}, "cache"},
		{"keepwatch-proxy", values{"cache": []any{"pods", "pods"}}, "cache"},
		{"keepwatch-proxy", values{"cach": []any{"pods"}}, "cach"},
		{"keepwatch-proxy", values{"replicas": 0}, "replicas"},
		{"keepwatch-proxy", values{"imagePullSecrets": []any{"registry"}}, "imagePullSecrets"},
		{"keepwatch-sync", values{"extraArgs": []any{"max-lag=5m"}}, "extraArgs"},
		{"keepwatch-proxy", values{"tolerations": values{"key": "infra"}}, "tolerations"},
		{"keepwatch-proxy", values{"memoryLimit": "much"}, "memoryLimit"},
		{"keepwatch-proxy", values{"tls": values{"secretName": ""}}, "secretName"},
		{"keepwatch-proxy", values{"redirect": values{"enabled": true}}, "redirect"},
		{"keepwatch-proxy", values{"redirect": values{"enabled": true, "caBundle": authority}}, "namespaces"},
		{"keepwatch-sync", values{"config": values{"to": "sqlite:elsewhere.db"}}, "to"},
		{"keepwatch-sync", values{"storage": values{"size": "5Gi"}}, "config.maxSize"},
		{"keepwatch-sync", values{"config": values{"to": "mysql://x"}}, "to"},
		{"keepwatch-sync", values{"config": values{"to": "https://h/", "state": "state"}}, "state"},
		{"keepwatch-sync", values{"config": values{"sinks": []any{values{"name": "x"}}}}, "to"},
		{"keepwatch-sync", values{"config": values{"sinks": []any{values{"to": "files:/data/changes", "compress": "lz4"}}}},
			"compress"},
		{"keepwatch-sync", values{"config": values{"resources": []any{values{"resource": "**"}}}}, "resource"},
		{"keepwatch-sync", values{"config": values{"resources": []any{values{"resource": "*."}}}}, "resource"},
		{"keepwatch-sync", values{"config": values{"resources": []any{}}}, "resources"},
		{"keepwatch-sync", values{"config": values{"resources": []any{values{"resource": "deployments"}}}},
			`"deployments" is no type of the core group`},
		{"keepwatch-sync", values{"config": values{"resources": []any{values{"resource": "po", "namespace": "shop"}}}},
			`"po" is no type of the core group`},
		{"keepwatch-sync", values{"config": values{"resources": []any{values{"resource": "secrets"}}}},
			"--include-secrets"},
		{"keepwatch-sync", values{"config": values{"to": "https://h/"}}, "state"},
		{"keepwatch-sync", values{"config": values{"sinks": []any{values{"to": "https://h/"}}}}, "state"},
		{"keepwatch-sync", values{"config": values{"resources": []any{values{"resource": "Pods"}}}}, "resource"},
	} {
		if _, err := render(c.chart, c.v); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %v: %v", c.chart, c.v, err)
		}
	}
}
