package deploy

import (
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
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
