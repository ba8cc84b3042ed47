package controlplane_test

import (
	"context"
	"net/url"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// A server that is ready has what a cluster has after its start.
func TestInitialObjects(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]controlplane.Options{"memory": {Controllers: true}, "etcd": {Controllers: true,
		TemporaryEtcd: true}} {
		t.Run(name, func(t *testing.T) {
			server := start(t, options)
			c := connect(t, server.RESTConfig())
			var names []string
			for _, ns := range must(c.typed.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}))(t).Items {
				names = append(names, ns.Name)
				checkDefaults(t, c, ns.Name, string(server.RESTConfig().CAData))
			}
			if want := []string{"default", "kube-node-lease", "kube-public", "kube-system"}; !slices.Equal(names, want) {
				t.Errorf("the namespaces are %q, want %q", names, want)
			}
			service := must(c.typed.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{}))(t)
			address := must(url.Parse(server.RESTConfig().Host))(t)
			if port := service.Spec.Ports[0]; service.Spec.ClusterIP != "10.0.0.1" || port.Port != 443 ||
				port.TargetPort.String() != address.Port() {
				t.Errorf("the service is %+v, the server at %s", service.Spec, address)
			}
		})
	}
}

// checkDefaults checks the default objects of one namespace.
func checkDefaults(t *testing.T, c clients, namespace, authorities string) {
	t.Helper()
	must(c.typed.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{}))(t)
	roots := must(c.typed.CoreV1().ConfigMaps(namespace).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{}))(t)
	if len(roots.Data) != 1 || roots.Data["ca.crt"] != authorities {
		t.Errorf("the authorities in %s are %q, want %q", namespace, roots.Data, authorities)
	}
}

// Of the initial namespaces only kube-node-lease can be deleted, as in kube-apiserver. The next start creates it again,
// and leaves the service as it is.
func TestInitialObjectsAfterRestart(t *testing.T) {
	t.Parallel()
	options := controlplane.Options{Controllers: true, DataDir: t.TempDir()}
	first := start(t, options)
	c := connect(t, first.RESTConfig())
	for _, name := range []string{"default", "kube-system", "kube-public"} {
		if err := c.typed.CoreV1().Namespaces().Delete(t.Context(), name,
			metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("deleting %s: %v", name, err)
		}
	}
	if err := c.typed.CoreV1().Namespaces().Delete(t.Context(), "kube-node-lease", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitNamespaceDeleted(t, c, "kube-node-lease")
	before := must(c.typed.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{}))(t)
	first.stop()

	second := start(t, options)
	c = connect(t, second.RESTConfig())
	checkDefaults(t, c, "kube-node-lease", string(second.RESTConfig().CAData))
	after := must(c.typed.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{}))(t)
	if after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the service was written: %+v", after)
	}
}

// A role that cannot be read keeps the server from creating the default roles, but not from creating other objects.
func TestInitialObjectsBesideADamagedRole(t *testing.T) {
	t.Parallel()
	options := controlplane.Options{TemporaryEtcd: true, Authorization: controlplane.RBAC}
	first := start(t, options)
	cluster := first.EtcdCluster()
	etcd := etcdClient(t, clientv3.Config{Endpoints: cluster.Servers})
	const role, service = "/registry/clusterroles/damaged", "/registry/services/specs/default/kubernetes"
	must(etcd.Put(t.Context(), role, "damaged"))(t)
	if deleted := must(etcd.Delete(t.Context(), service))(t).Deleted; deleted != 1 {
		t.Fatalf("%d keys are %s", deleted, service)
	}

	server := must(controlplane.New(controlplane.Options{Etcd: cluster, Adopt: true,
		Authorization: controlplane.RBAC}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	second := &running{server, t, cancel, make(chan error, 1)}
	go func() { second.ended <- server.Run(ctx) }()
	defer second.stop()
	await.True(t, "the service is created", func() bool {
		return must(etcd.Get(t.Context(), service))(t).Count == 1
	})
}

// A new namespace gets the default objects, and gets them again when they are deleted or changed.
func TestDefaultsOfNewNamespace(t *testing.T) {
	t.Parallel()
	server := start(t, controlplane.Options{Controllers: true})
	c := connect(t, server.RESTConfig())
	ctx, name, authorities := t.Context(), newNamespace(t, c), string(server.RESTConfig().CAData)
	accounts, configMaps := c.typed.CoreV1().ServiceAccounts(name), c.typed.CoreV1().ConfigMaps(name)
	hasDefaults := func() (bool, string) {
		if _, err := accounts.Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		roots, err := configMaps.Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return roots.Data["ca.crt"] == authorities && len(roots.Data) == 1, "the config map differs"
	}
	await.State(t, "a new namespace has its default objects", hasDefaults)
	if err := accounts.Delete(ctx, "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.State(t, "a deleted service account comes back", hasDefaults)
	if err := configMaps.Delete(ctx, "kube-root-ca.crt", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.State(t, "a deleted config map comes back", hasDefaults)
	changed := must(configMaps.Get(ctx, "kube-root-ca.crt", metav1.GetOptions{}))(t)
	changed.Data = map[string]string{"ca.crt": "other", "more": "x"}
	must(configMaps.Update(ctx, changed, metav1.UpdateOptions{}))(t)
	await.State(t, "a changed config map is restored", hasDefaults)

	if err := c.typed.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitNamespaceDeleted(t, c, name)
	for what, n := range map[string]int{
		"service accounts": len(must(accounts.List(ctx, metav1.ListOptions{}))(t).Items),
		"config maps":      len(must(configMaps.List(ctx, metav1.ListOptions{}))(t).Items),
	} {
		if n != 0 {
			t.Errorf("%d %s outlived their namespace", n, what)
		}
	}
}

// A namespace with contents that hold its deletion keeps what is deleted from it deleted.
func TestTerminatingNamespaceGetsNoDefaults(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, controlplane.Options{Controllers: true}).RESTConfig())
	ctx, name := t.Context(), newNamespace(t, c)
	accounts := c.typed.CoreV1().ServiceAccounts(name)
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}}}
	must(c.typed.CoreV1().ConfigMaps(name).Create(ctx, held, metav1.CreateOptions{}))(t)
	await.State(t, "the service account exists", func() (bool, string) {
		_, err := accounts.Get(ctx, "default", metav1.GetOptions{})
		return err == nil, "not yet"
	})
	if err := c.typed.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.State(t, "the service account is gone", func() (bool, string) {
		_, err := accounts.Get(ctx, "default", metav1.GetOptions{})
		return apierrors.IsNotFound(err), "it exists"
	})
	must(c.typed.CoreV1().ConfigMaps(name).Patch(ctx, "held", "application/merge-patch+json",
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)
	waitNamespaceDeleted(t, c, name)
}
