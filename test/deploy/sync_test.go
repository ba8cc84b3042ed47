package deploy

import (
	"context"
	"database/sql"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	_ "modernc.org/sqlite"

	"github.com/keepwatch/keepwatch/test/peer"
)

// With the file and the rights of the chart the command stores the resources, and the cluster's identity.
func TestInstalledSync(t *testing.T) {
	c := newCluster(t, peer.Kubernetes(t))
	all := manifests(t, "keepwatch-sync", values{"config": values{"retention": "1h", "resources": []any{values{"resource": "namespaces"}, values{"resource": "configmaps", "metadataOnly": true}, values{"resource": "deployments.v1.apps"}}}})
	c.apply(all)
	pod := find[appsv1.StatefulSet](t, all, "StatefulSet").Spec.Template.Spec
	if args := strings.Join(pod.Containers[0].Args, " "); args != "sync --filename=/config/sync.yaml --metrics-bind-address=:8080" {
		t.Errorf("the arguments: %s", args)
	}
	dir := t.TempDir()
	database := filepath.Join(dir, "state.db")
	text := strings.Replace(find[corev1.ConfigMap](t, all, "ConfigMap").Data["sync.yaml"], "/data/state.db", database, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, peer.Keepwatch(t), "sync", "--kubeconfig", c.kubeconfig("keepwatch-sync"), "--filename", writeFile(t, dir, "sync.yaml", []byte(text)), "--until-synced").CombinedOutput()
	if err != nil || strings.Contains(string(out), "orbidden") {
		t.Fatalf("%v: %s", err, out)
	}
	db, err := sql.Open("sqlite", database)
	c.must(err)
	defer db.Close()
	var names string
	c.must(db.QueryRowContext(t.Context(), "SELECT group_concat(name, ' ') FROM (SELECT name FROM resources WHERE resource = 'namespaces' AND valid_to IS NULL ORDER BY name)").Scan(&names))
	if names != "default keepwatch kube-node-lease kube-public kube-system" {
		t.Errorf("namespaces: %s\n%s", names, out)
	}
}
