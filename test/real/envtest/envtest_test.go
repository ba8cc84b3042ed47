// Package envtest runs controller-runtime's envtest with the API server of keepwatch assets, and a real etcd.
package envtest

import (
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// With an etcd that stores data, an API server that is started again has its objects.
func TestObjectsInRealEtcd(t *testing.T) {
	env := &envtest.Environment{
		BinaryAssetsDirectory:    assets(t),
		ControlPlaneStartTimeout: 2 * time.Minute,
		ControlPlaneStopTimeout:  2 * time.Minute,
	}
	env.ControlPlane.Etcd = &envtest.Etcd{Path: peer.Build(t, peer.Etcd)}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	if _, err := env.Start(); err != nil {
		t.Fatal(err)
	}
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	if err := newClient(t, env).Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	server := env.ControlPlane.APIServer
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	found := &corev1.ConfigMap{}
	if err := newClient(t, env).Get(t.Context(), client.ObjectKeyFromObject(made), found); err != nil {
		t.Fatal(err)
	}
	if found.UID != made.UID || found.ResourceVersion != made.ResourceVersion {
		t.Errorf("the object was %s at %s, and is %s at %s", made.UID, made.ResourceVersion, found.UID, found.ResourceVersion)
	}

	etcd, err := peer.Endpoint("http://" + env.ControlPlane.Etcd.URL.Host).Client()
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	key := filepath.Join("/registry/configmaps", made.Namespace, made.Name)
	if answer, err := etcd.Get(t.Context(), key); err != nil || answer.Count != 1 {
		t.Errorf("etcd has %v at %s: %v", answer, key, err)
	}
}

// newClient returns a client of the server that runs now: each start has a new serving certificate.
func newClient(t *testing.T, env *envtest.Environment) client.Client {
	t.Helper()
	admin, err := env.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(admin.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
