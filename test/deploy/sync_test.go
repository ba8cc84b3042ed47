package deploy

import (
	"context"
	"database/sql"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	_ "modernc.org/sqlite"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

// The file has what the values say, without the defaults that are not for its sinks, and a Lease elects one of two
// pods.
func TestSyncFile(t *testing.T) {
	for which, want := range map[string]struct {
		file, args string
		replicas   int32
		volumes    string
	}{
		"defaults": {`maxSize: 8Gi
resources:
- resource: pods
- resource: nodes
- resource: deployments.apps
retention: 30d
to: sqlite:/data/state.db`, "", 1, "config data tmp"},
		"postgres": {`maxSize: 20Gi
resources:
- resource: pods
- metadataOnly: true
  resource: deployments.v1.apps
retention: 30d
to: postgres://sync@db/kubernetes`, " --leader-elect=keepwatch/keepwatch-sync", 2, "config tmp"},
		"brokers": {`resources:
- resource: pods
- resource: '*.example.com'
sinks:
- to: kafka://kafka:9092/k8s.{resource}
- name: audit
  to: nats://nats/AUDIT?creds=/secrets/nats.creds
- retention: 24h
  to: postgres://sync@db/kubernetes`, " --leader-elect=keepwatch/keepwatch-sync", 2, "config secrets tmp"},
		"http": {`mode: batched
resources:
- resource: pods
- resource: nodes
- resource: deployments.apps
signingKey: /secrets/key
state: /data/state
to: https://events.example.com/in`, "", 1, "config data tmp"},
	} {
		all := manifests(t, "keepwatch-sync", settings["keepwatch-sync"][which])
		if file := string(find[corev1.Secret](t, all, "Secret").Data["sync.yaml"]); strings.TrimSpace(file) != want.file {
			t.Errorf("%s: the file is\n%s", which, file)
		}
		set := find[appsv1.StatefulSet](t, all, "StatefulSet").Spec
		container := set.Template.Spec.Containers[0]
		if args := strings.Join(container.Args,
			" "); args != "sync --filename=/config/sync.yaml --metrics-bind-address=:8080"+want.args {
			t.Errorf("%s: the arguments: %s", which, args)
		}
		var volumes []string
		for _, v := range container.VolumeMounts {
			volumes = append(volumes, v.Name)
		}
		slices.Sort(volumes)
		if got := strings.Join(volumes, " "); got != want.volumes || *set.Replicas != want.replicas {
			t.Errorf("%s: volumes %s, %d replicas", which, got, *set.Replicas)
		}
	}
}

// Resources with a namespace are granted there only.
func TestSyncRights(t *testing.T) {
	all := manifests(t, "keepwatch-sync", values{"config": values{"resources": []any{
		values{"resource": "pods", "namespace": "shop"}, values{"resource": "pods", "namespace": "stock"},
		values{"resource": "deployments.v1.apps", "namespace": "shop"},
		values{"resource": "*.example.com", "namespace": "stock"}, values{"resource": "nodes"},
		values{"resource": "*", "namespace": "bank"},
	}}})
	got := map[string][]string{}
	for _, o := range all {
		if !strings.HasSuffix(o.GetKind(), "Role") || o.GetName() == "keepwatch-sync-lease" {
			continue
		}
		var role rbacv1.Role // a ClusterRole has the same rules
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			got[o.GetNamespace()] = append(got[o.GetNamespace()], strings.Join(rule.Resources, " ")+"."+
				strings.Join(rule.APIGroups, " "))
		}
	}
	want := map[string][]string{
		"": {"namespaces.", "nodes.", "customresourcedefinitions.apiextensions.k8s.io",
			"apiservices.apiregistration.k8s.io"},
		"shop": {"pods.", "deployments.apps"}, "stock": {"pods.", "*.example.com"},
		"bank": {"*.*"},
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("granted: %v", got)
	}
}

// With the file and the rights of the chart the command stores the resources, and the cluster's identity.
func TestInstalledSync(t *testing.T) {
	c := newCluster(t, peer.Kubernetes(t))
	all := manifests(t, "keepwatch-sync",
		values{"config": values{"retention": "1h", "resources": []any{values{"resource": "namespaces"},
			values{"resource": "configmaps", "metadataOnly": true},
			values{"resource": "*", "namespace": installed}}}})
	c.apply(all)
	pod := find[appsv1.StatefulSet](t, all, "StatefulSet").Spec.Template.Spec
	if args := strings.Join(pod.Containers[0].Args,
		" "); args != "sync --filename=/config/sync.yaml --metrics-bind-address=:8080" {
		t.Errorf("the arguments: %s", args)
	}
	dir := t.TempDir()
	database := filepath.Join(dir, "state.db")
	text := strings.Replace(string(find[corev1.Secret](t, all, "Secret").Data["sync.yaml"]), "/data/state.db", database, 1)
	ctx, cancel := context.WithTimeout(t.Context(), await.Deadline)
	defer cancel()
	out, err := exec.CommandContext(ctx, peer.Keepwatch(t), "sync", "--kubeconfig", c.kubeconfig("keepwatch-sync"),
		"--filename", writeFile(t, dir, "sync.yaml", []byte(text)), "--until-synced").CombinedOutput()
	if err != nil || strings.Contains(string(out), "orbidden") {
		t.Fatalf("%v: %s", err, out)
	}
	db, err := sql.Open("sqlite", database)
	c.must(err)
	defer db.Close()
	var names string
	c.must(db.QueryRowContext(t.Context(),
		"SELECT group_concat(name, ' ') FROM (SELECT name FROM resources WHERE resource = 'namespaces' AND valid_to IS NULL ORDER BY name)").Scan(&names))
	if names != "default keepwatch kube-node-lease kube-public kube-system" {
		t.Errorf("namespaces: %s\n%s", names, out)
	}
}
