package apiserver

import (
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

// TestKubeadmManifest takes kube-apiserver's place in a cluster of kubeadm's, and gives it back. Each server starts by
// the command that kubeadm has written, in the files of its image, on the same etcd.
func TestKubeadmManifest(t *testing.T) {
	notShort(t)
	images, n := buildImages(t), newNode(t)
	keepwatch := images["root"]

	n.path = "/usr/local/bin"
	n.install(t, peer.Build(t, peer.LatestKubeAPIServer), "/usr/local/bin/kube-apiserver")
	n.start(t, root)
	before := n.write(t, "kube-apiserver")
	n.stop(t)
	contents := n.contents(t.Context(), t)

	keepwatch.unpack(t, n.root)
	for _, e := range keepwatch.Config.Env {
		n.path, _ = strings.CutPrefix(e, "PATH=")
	}
	if out := n.run(t, root, append(keepwatch.Config.Entrypoint, n.container.Command[0],
		"--version")...); !strings.HasSuffix(out, "Kubernetes v1.37.2\n") {
		t.Errorf("the image's entry point prints %q", out)
	}
	n.start(t, root)
	n.unchanged(t, contents)
	n.unchangedByUpdates(t, before)
	n.checkAccess(t)
	n.checkKubelet(t)
	after := n.write(t, "keepwatch")
	n.stop(t)
	contents = n.contents(t.Context(), t)

	t.Run("as an ordinary user", func(t *testing.T) {
		user, _, _ := strings.Cut(images[""].Config.User, ":")
		if user == "" || user == root {
			t.Fatalf("the image's user is %q", images[""].Config.User)
		}
		n.start(t, user)
		n.stop(t)
		n.unchanged(t, contents)
	})

	n.install(t, peer.Build(t, peer.LatestKubeAPIServer), "/usr/local/bin/kube-apiserver")
	n.start(t, root)
	defer n.stop(t)
	n.unchanged(t, contents)
	n.unchangedByUpdates(t, after)
}

// unchanged checks that a server has changed no key that etcd had when it started.
func (n *node) unchanged(t *testing.T, before map[string]string) {
	t.Helper()
	now := n.contents(t.Context(), t)
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if value, ok := now[key]; !ok {
			t.Errorf("%s is deleted", key)
		} else if value != before[key] {
			t.Errorf("%s was %q and is %q", key, before[key], value)
		}
	}
}

// writtenObject is an object of a kind.
type writtenObject struct {
	resource schema.GroupVersionResource
	object   *unstructured.Unstructured
}

// write creates an object of several kinds, and returns them.
func (n *node) write(t *testing.T, name string) []writtenObject {
	t.Helper()
	client, err := dynamic.NewForConfig(n.config(t, "super-admin.conf"))
	if err != nil {
		t.Fatal(err)
	}
	var all []writtenObject
	plural := strings.ReplaceAll(name, "-", "") + "s"
	for _, o := range []struct {
		group, version, resource, kind string
		namespaced                     bool
		fields                         map[string]any
	}{
		{"", "v1", "namespaces", "Namespace", false, nil},
		{"", "v1", "nodes", "Node", false, nil},
		{"", "v1", "serviceaccounts", "ServiceAccount", true, nil},
		{"", "v1", "configmaps", "ConfigMap", true, map[string]any{"data": map[string]any{"a": "b"}}},
		{"", "v1", "secrets", "Secret", true, map[string]any{"stringData": map[string]any{"a": "b"}}},
		{"", "v1", "services", "Service", true,
			map[string]any{"spec": map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}}},
		{"", "v1", "events", "Event", true, map[string]any{"involvedObject": map[string]any{"namespace": name}}},
		{"apps", "v1", "deployments", "Deployment", true, map[string]any{"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": podSpec()},
		}}},
		{"rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false, nil},
		{"apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false,
			map[string]any{"spec": map[string]any{
				"group": name + ".test", "scope": "Namespaced", "names": map[string]any{"plural": plural, "kind": "Thing"},
				"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
			}}},
	} {
		w := writtenObject{schema.GroupVersionResource{Group: o.group, Version: o.version, Resource: o.resource},
			&unstructured.Unstructured{Object: map[string]any{}}}
		maps.Copy(w.object.Object, o.fields)
		w.object.SetGroupVersionKind(schema.GroupVersionKind{Group: o.group, Version: o.version, Kind: o.kind})
		w.object.SetName(name)
		if o.kind == "CustomResourceDefinition" {
			w.object.SetName(plural + "." + name + ".test")
		}
		if o.namespaced {
			w.object.SetNamespace(name)
		}
		if w.object, err = client.Resource(w.resource).Namespace(w.object.GetNamespace()).Create(t.Context(), w.object,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	n.waitForControllers(t, client)
	return all
}

// waitForControllers waits until the API server's own controllers have written what they write once.
func (n *node) waitForControllers(t *testing.T, client dynamic.Interface) {
	t.Helper()
	for _, c := range []struct{ group, resource, condition string }{
		{"apiregistration.k8s.io", "apiservices", "Available"},
		{"apiextensions.k8s.io", "customresourcedefinitions", "Established"},
		{"flowcontrol.apiserver.k8s.io", "flowschemas", "Dangling"},
		{"networking.k8s.io", "servicecidrs", "Ready"},
	} {
		resource := client.Resource(schema.GroupVersionResource{Group: c.group, Version: "v1", Resource: c.resource})
		await.True(t, fmt.Sprintf("all %s have the condition %s", c.resource, c.condition), func() bool {
			list, err := resource.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			waiting := slices.ContainsFunc(list.Items, func(o unstructured.Unstructured) bool {
				return !hasCondition(o, c.condition)
			})
			return !waiting && len(list.Items) > 0
		})
	}
}

func hasCondition(o unstructured.Unstructured, name string) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == name })
}

func podSpec() map[string]any {
	return map[string]any{"containers": []any{map[string]any{"name": "a", "image": "b"}}}
}

// unchangedByUpdates updates objects to what they are. The API server encodes each and writes it only if
// the bytes differ from those in etcd.
func (n *node) unchangedByUpdates(t *testing.T, all []writtenObject) {
	t.Helper()
	client, err := dynamic.NewForConfig(n.config(t, "super-admin.conf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		resource := client.Resource(w.resource).Namespace(w.object.GetNamespace())
		now, err := resource.Get(t.Context(), w.object.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Error(err)
			continue
		}
		updated, err := resource.Update(t.Context(), now, metav1.UpdateOptions{FieldManager: "apiserver.test"})
		if err != nil {
			t.Error(err)
		} else if updated.GetResourceVersion() != now.GetResourceVersion() {
			t.Errorf("%s is encoded in other bytes", w.resource.Resource)
		}
	}
}

// checkAccess checks what users of kubeadm's may do.
func (n *node) checkAccess(t *testing.T) {
	t.Helper()
	anonymous := rest.AnonymousClientConfig(n.config(t, "super-admin.conf"))
	for name, c := range map[string]struct {
		config  *rest.Config
		path    string
		allowed bool
	}{
		"anonymous, health":     {anonymous, "/livez", true},
		"anonymous, namespaces": {anonymous, "/api/v1/namespaces", false},
		"scheduler, pods":       {n.config(t, "scheduler.conf"), "/api/v1/pods", true},
		"scheduler, secrets":    {n.config(t, "scheduler.conf"), "/api/v1/secrets", false},
		"controllers, secrets":  {n.config(t, "controller-manager.conf"), "/api/v1/secrets", true},
		"kubelet, its node":     {n.config(t, "kubelet.conf"), "/api/v1/nodes/node", true},
		"kubelet, a secret": {n.config(t, "kubelet.conf"),
			"/api/v1/namespaces/kube-apiserver/secrets/kube-apiserver", false},
		"admin before kubeadm binds the role": {n.config(t, "admin.conf"), "/api/v1/namespaces", false},
	} {
		client, err := kubernetes.NewForConfig(c.config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.RESTClient().Get().AbsPath(c.path).DoRaw(t.Context())
		if c.allowed && err != nil && !apierrors.IsNotFound(err) || !c.allowed && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want allowed: %v", name, err, c.allowed)
		}
	}
}

// checkKubelet reads a log: the API server proves its identity to the kubelet.
func (n *node) checkKubelet(t *testing.T) {
	t.Helper()
	kubelet := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "for %s", r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	kubelet.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: n.authority(t, "ca.crt")}
	kubelet.StartTLS()
	defer kubelet.Close()
	client, err := kubernetes.NewForConfig(n.config(t, "super-admin.conf"))
	if err != nil {
		t.Fatal(err)
	}
	const name = "kubelet"
	node, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	address := kubelet.Listener.Addr().(*net.TCPAddr)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.IP.String()}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(address.Port)
	if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The admission plugin ServiceAccount wants the account that a controller would have made.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(), account,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: name,
		Containers: []corev1.Container{{Name: "a", Image: "b"}}}}
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	log, err := client.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if text, err := io.ReadAll(log); err != nil || string(text) != "for kube-apiserver-kubelet-client" {
		t.Errorf("the log is %q, %v", text, err)
	}
}

// TestKubeadmPatch: the patch of docs/kubernetes.md changes the image and nothing else.
func TestKubeadmPatch(t *testing.T) {
	notShort(t)
	n := newNode(t)
	page, err := os.ReadFile("../../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	const file = "kube-apiserver0+strategic.yaml"
	_, patch, _ := strings.Cut(string(page), "# "+file+"\n")
	patch, _, _ = strings.Cut(patch, "\n\n")
	patch = strings.ReplaceAll(patch, "\n    ", "\n") // the page's indentation
	patch = strings.TrimPrefix(patch, "    ")
	if err := os.WriteFile(filepath.Join(n.root, "patches", file), []byte(patch), 0o600); err != nil {
		t.Fatal(err)
	}
	patched := n.manifest(t)
	if want := "localhost/keepwatch-apiserver:v1.37.2-root"; patched.Image != want {
		t.Errorf("the image is %s, want %s", patched.Image, want)
	}
	patched.Image = n.container.Image
	if !equality.Semantic.DeepEqual(patched, n.container) {
		t.Errorf("the patch changes the container to %v", patched)
	}
}
