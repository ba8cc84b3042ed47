package deploy

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/test/peer"
)

// The chart's ClusterRole is what the command prints for the same resources.
func TestClusterRoleIsPrinted(t *testing.T) {
	program := peer.Keepwatch(t)
	for which, v := range settings["keepwatch-proxy"] {
		all := manifests(t, "keepwatch-proxy", v)
		args := append(argsOf(find[appsv1.Deployment](t, all, "Deployment").Spec.Template.Spec, "--cache", "--impersonate",
			"--personal"), "--print-rbac")
		command := exec.CommandContext(t.Context(), program, append([]string{"proxy"}, args...)...)
		command.Env = append(command.Environ(), "KUBECONFIG="+filepath.Join(t.TempDir(), "none"))
		text, err := command.Output()
		if err != nil {
			t.Fatalf("%s: %v: %v", which, args, err)
		}
		var printed rbacv1.ClusterRole
		if err := yaml.UnmarshalStrict(text, &printed); err != nil {
			t.Fatal(err)
		}
		role := find[rbacv1.ClusterRole](t, all, "ClusterRole")
		if !reflect.DeepEqual(role.Rules, printed.Rules) {
			got, _ := yaml.Marshal(role.Rules)
			t.Errorf("%s: the chart has\n%s\nand the command prints\n%s", which, got, text)
		}
	}
}

// argsOf returns the arguments of the only container whose flags have one of the names; all but the subcommand without
// names.
func argsOf(pod corev1.PodSpec, names ...string) []string {
	args := slices.Clone(pod.Containers[0].Args[1:])
	if len(names) == 0 {
		return args
	}
	return slices.DeleteFunc(args, func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return !slices.Contains(names, name)
	})
}

// install applies the chart, and starts the command with the arguments of its Deployment, with more, and the rights of
// its service account.
func (c *cluster) install(v values, more ...string) *proxied {
	c.Helper()
	all := manifests(c.T, "keepwatch-proxy", v)
	c.apply(all)
	deployment := find[appsv1.Deployment](c.T, all, "Deployment")
	if deployment.Spec.Template.Spec.ServiceAccountName != "keepwatch-proxy" {
		c.Errorf("the service account: %s", deployment.Spec.Template.Spec.ServiceAccountName)
	}
	serving, err := localhost.NewCertificate()
	c.must(err)
	dir := c.TempDir()
	files := strings.NewReplacer("/tls/tls.crt", writeFile(c.T, dir, "tls.crt", serving.Cert), "/tls/tls.key",
		writeFile(c.T, dir, "tls.key", serving.Key), "/state", filepath.Join(dir, "state"))
	args := more
	for _, arg := range argsOf(deployment.Spec.Template.Spec) {
		if !strings.HasPrefix(arg, "--listen=") {
			args = append(args, files.Replace(arg))
		}
	}
	return startProxy(c.T, c.kubeconfig("keepwatch-proxy"), serving.Authority, args)
}

// With the arguments and the rights of the chart the command becomes ready, and answers reads from memory.
func TestInstalledProxy(t *testing.T) {
	c := newCluster(t, peer.Kubernetes(t))
	p := c.install(values{"cache": []any{"configmaps", "namespaces", "deployments.apps"}})
	config := c.server.Config()
	c.eventually("the proxy is ready", func() bool { return p.get("/readyz", "") == http.StatusOK })
	const maps = "/api/v1/namespaces/default/configmaps?resourceVersion=0"
	c.eventually("config maps are answered from memory", func() bool {
		if code := p.get(maps, config.BearerToken); code != http.StatusOK {
			t.Fatalf("%d", code)
		}
		return strings.Contains(p.body("/metrics", config.BearerToken), `keepwatch_readpath_answered_total{verb="list"}`)
	})
	if code := p.get("/api/v1/namespaces/default/secrets?resourceVersion=0", config.BearerToken); code != http.StatusOK {
		t.Errorf("secrets are not forwarded: %d", code)
	}
}

// The policy points pods of labelled namespaces at the proxy, and leaves the others as they are.
func TestRedirect(t *testing.T) {
	c := newCluster(t, peer.Kubernetes(t), "shop", "stock")
	c.apply(manifests(t, "keepwatch-proxy", values{"redirect": values{"enabled": true, "caBundle": authority,
		"namespaces": []any{"shop"}}}))
	_, err := c.client.CoreV1().Namespaces().Patch(t.Context(), "shop", "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"keepwatch.io/proxy":"enabled"}}}`), metav1.PatchOptions{})
	c.must(err)
	bundle, err := c.client.CoreV1().ConfigMaps("shop").Get(t.Context(), "keepwatch-proxy.keepwatch-ca", metav1.GetOptions{})
	c.must(err)
	if bundle.Data["ca.crt"] != authority {
		t.Errorf("the authority: %q", bundle.Data)
	}
	create := func(namespace string, edit func(*corev1.Pod)) *corev1.Pod {
		t.Helper()
		pod := podWithToken()
		edit(pod)
		created, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		c.must(err)
		return created
	}
	c.eventually("the policy is in force", func() bool {
		return hostOf(create("shop", func(*corev1.Pod) {}).Spec.Containers[0]) != ""
	})
	pod := create("shop", func(*corev1.Pod) {})
	const host = "keepwatch-proxy.keepwatch.svc"
	for _, container := range append(pod.Spec.Containers, pod.Spec.InitContainers...) {
		if hostOf(container) != host || !slices.Contains(container.Env, corev1.EnvVar{Name: "KUBERNETES_SERVICE_PORT",
			Value: "443"}) {
			t.Errorf("%s: %v", container.Name, container.Env)
		}
	}
	if !slices.Contains(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "OWN", Value: "1"}) {
		t.Errorf("the container's own variable is gone: %v", pod.Spec.Containers[0].Env)
	}
	want := podWithToken().Spec.Volumes
	want[1].Projected.Sources[1].ConfigMap.Name = "keepwatch-proxy.keepwatch-ca"
	if !reflect.DeepEqual(pod.Spec.Volumes, want) {
		t.Errorf("the volumes: %v", pod.Spec.Volumes)
	}
	again := create("shop", func(p *corev1.Pod) { // with what a webhook adds between the evaluations
		p.Spec = *pod.Spec.DeepCopy()
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "sidecar", Image: "x"})
	})
	if sidecar := again.Spec.Containers[2]; hostOf(sidecar) != host || !reflect.DeepEqual(again.Spec.Volumes, want) ||
		!reflect.DeepEqual(again.Spec.Containers[0].Env, pod.Spec.Containers[0].Env) {
		t.Errorf("evaluated again: %v", again.Spec)
	}
	for name, c := range map[string]struct {
		namespace string
		edit      func(*corev1.Pod)
	}{
		"another namespace": {"stock", func(*corev1.Pod) {}},
		"the proxy": {"shop", func(p *corev1.Pod) {
			p.Labels = map[string]string{"app.kubernetes.io/name": "keepwatch-proxy"}
		}},
		"the host's network": {"shop", func(p *corev1.Pod) { p.Spec.HostNetwork = true }},
		"another server": {"shop", func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "10.0.0.1"}}
		}},
		"no token":  {"shop", func(p *corev1.Pod) { p.Spec.Volumes = p.Spec.Volumes[:1] }},
		"no volume": {"shop", func(p *corev1.Pod) { p.Spec.Volumes = nil }},
	} {
		if pod := create(c.namespace, c.edit); hostOf(pod.Spec.Containers[1]) != "" || slices.ContainsFunc(pod.Spec.Volumes,
			func(v corev1.Volume) bool {
				return v.Projected != nil && v.Projected.Sources[1].ConfigMap.Name != "kube-root-ca.crt"
			}) {
			t.Errorf("%s: the pod is changed: %v", name, pod.Spec)
		}
	}
}

// podWithToken returns a pod with the volume that kube-apiserver's admission of service accounts adds, before policies
// are evaluated.
func podWithToken() *corev1.Pod {
	lifetime, mode := int64(3607), int32(0o644)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "client"},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init", Image: "x"}},
			Containers: []corev1.Container{{Name: "one", Image: "x", Env: []corev1.EnvVar{{Name: "OWN", Value: "1"}}},
				{Name: "two", Image: "x"}},
			ServiceAccountName: "default",
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "kube-api-access-x",
					VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: &mode,
						Sources: []corev1.VolumeProjection{
							{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &lifetime, Path: "token"}},
							{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{
								Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
							{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace",
								FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
						}}}},
			},
		},
	}
}

// hostOf returns a container's API server.
func hostOf(c corev1.Container) string {
	for _, e := range c.Env {
		if e.Name == "KUBERNETES_SERVICE_HOST" {
			return e.Value
		}
	}
	return ""
}
