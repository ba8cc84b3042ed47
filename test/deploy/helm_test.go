package deploy

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

// helmProgram is the program helm, with a folder of its own in place of the user's.
type helmProgram struct {
	*testing.T
	path, home, kubeconfig string
}

// newHelm builds the program that the tools of the test module name.
func newHelm(t *testing.T, kubeconfig string) *helmProgram {
	t.Helper()
	home := t.TempDir()
	path := filepath.Join(home, "helm")
	command(t, filepath.Join("..", ".."), "go", "-C", "test", "build", "-o", path, "helm.sh/helm/v4/cmd/helm")
	return &helmProgram{t, path, home, kubeconfig}
}

// run runs helm in the namespace of the releases, and returns what it printed.
func (h *helmProgram) run(args ...string) string {
	h.Helper()
	out, err := h.try(args...)
	if err != nil {
		h.Fatalf("helm %q: %v: %s", args, err, out)
	}
	return out
}

// try is run that may fail.
func (h *helmProgram) try(args ...string) (string, error) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), 2*await.Deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.path, append(args, "--namespace", installed)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+h.kubeconfig, "HELM_CACHE_HOME="+filepath.Join(h.home, "cache"),
		"HELM_CONFIG_HOME="+filepath.Join(h.home, "config"), "HELM_DATA_HOME="+filepath.Join(h.home, "data"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The program helm installs the charts of a release as the documentation says, waits until their pods are ready, which
// are simulated, and upgrades, rolls back and uninstalls them. Only the volume of sync stays.
func TestHelm(t *testing.T) {
	release := newRelease(t)
	c := newCluster(t, peer.Serve(t, "--controllers=true", "--simulate"))
	helm := newHelm(t, c.server.Kubeconfig())
	for name, workload := range map[string]string{"keepwatch-proxy": "Deployment", "keepwatch-sync": "StatefulSet"} {
		t.Run(name, func(t *testing.T) {
			helm := *helm
			helm.T = t
			wait := []string{"--wait", "--timeout", await.Deadline.Truncate(time.Second).String()}
			archive := filepath.Join(release, name+"-1.2.3-rc.1.tgz")
			helm.run(append([]string{"install", name, archive, "--set", "image.repository=registry.example.com/keepwatch"},
				wait...)...)
			c.runs(t, name, workload, released)
			var listed []struct {
				Name, Status, Chart string
				AppVersion          string `json:"app_version"`
			}
			if err := json.Unmarshal([]byte(helm.run("list", "--filter", name, "--output", "json")), &listed); err != nil {
				t.Fatal(err)
			}
			if len(listed) != 1 || listed[0].Status != "deployed" || listed[0].Chart != name+"-1.2.3-rc.1" ||
				listed[0].AppVersion != released {
				t.Errorf("helm list: %+v", listed)
			}
			objects := objects(t, name, helm.run("get", "manifest", name))

			upgrade := append([]string{"upgrade", name, archive, "--reset-then-reuse-values"}, wait...)
			helm.run(append(upgrade, "--set", "image.tag=v0.2.0")...)
			c.runs(t, name, workload, "v0.2.0")
			helm.run(append([]string{"rollback", name, "1"}, wait...)...)
			c.runs(t, name, workload, released)
			if history := helm.run("history", name); strings.Count(history, "\n") != 4 {
				t.Errorf("helm history:\n%s", history)
			}

			if name == "keepwatch-sync" {
				c.enlarge(t, &helm, upgrade)
			}

			helm.run(append([]string{"uninstall", name}, wait...)...)
			for _, o := range objects {
				if _, err := c.stored(t, o); !apierrors.IsNotFound(err) {
					t.Errorf("after helm uninstall, %s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
			claims, err := c.client.CoreV1().PersistentVolumeClaims(installed).List(t.Context(),
				metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + name})
			if err != nil || (len(claims.Items) == 1) != (name == "keepwatch-sync") {
				t.Errorf("claims after helm uninstall: %v, %v", claims, err)
			}
		})
	}
}

// enlarge upgrades keepwatch-sync to a larger volume, which is refused with what to do first, before anything is
// written.
func (c *cluster) enlarge(t *testing.T, helm *helmProgram, upgrade []string) {
	t.Helper()
	const name, claim = "keepwatch-sync", "data-keepwatch-sync-0"
	file := func() string {
		secret, err := c.client.CoreV1().Secrets(installed).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return string(secret.Data["sync.yaml"])
	}
	before := file()
	upgrade = append(upgrade, "--set", "storage.size=20Gi,config.maxSize=16Gi")
	patch := `{"spec":{"resources":{"requests":{"storage":"20Gi"}}}}`
	out, err := helm.try(upgrade...)
	if err == nil || !strings.Contains(out, "statefulset "+name+" --cascade=orphan") ||
		!strings.Contains(out, "patch pvc "+claim+" -p '"+patch+"'") || file() != before {
		t.Errorf("the upgrade is refused with %v: %s; the file is now\n%s", err, out, file())
	}
	_, err = c.client.CoreV1().PersistentVolumeClaims(installed).Patch(t.Context(), claim, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	orphan := metav1.DeletePropagationOrphan
	sets := c.client.AppsV1().StatefulSets(installed)
	if err := sets.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		t.Fatal(err)
	}
	c.eventually("the StatefulSet is gone", func() bool {
		_, err := sets.Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	helm.run(upgrade...)
	c.runs(t, name, "StatefulSet", released)
	if after := file(); !strings.Contains(after, "maxSize: 16Gi") {
		t.Errorf("after the upgrade the file is\n%s", after)
	}
}

// stored reads an object of a chart.
func (c *cluster) stored(t *testing.T, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	t.Helper()
	mapping, err := c.mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
	if err != nil {
		t.Fatal(err)
	}
	return c.dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace()).Get(t.Context(), o.GetName(),
		metav1.GetOptions{})
}

// runs checks that all pods of a release run the image with the tag, and are ready.
func (c *cluster) runs(t *testing.T, name, workload, tag string) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": workload}}
	o.SetNamespace(installed)
	o.SetName(name)
	found, err := c.stored(t, o)
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ := unstructured.NestedInt64(found.Object, "spec", "replicas")
	ready, _, _ := unstructured.NestedInt64(found.Object, "status", "readyReplicas")
	pods, err := c.client.CoreV1().Pods(installed).List(t.Context(),
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	running := int64(0)
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning &&
			p.Spec.Containers[0].Image == "registry.example.com/keepwatch:"+tag {
			running++
		}
	}
	if want == 0 || ready != want || running != want {
		t.Errorf("%s %s has %d replicas, %d of them ready; %d pods run %s", workload, name, want, ready, running, tag)
	}
}
