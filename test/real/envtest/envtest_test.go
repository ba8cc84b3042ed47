// Package envtest runs controller-runtime's envtest with the API server of keepwatch assets, and a real etcd.
package envtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// With an etcd that stores data, an API server that is started again has its objects.
func TestObjectsInRealEtcd(t *testing.T) {
	env := environment(t, assets(t))
	env.ControlPlane.Etcd = &envtest.Etcd{Path: peer.Build(t, peer.Etcd)}
	start(t, env)
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	if err := newClient(t, env).Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	restart(t, env)
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

// With --exact, the server has the validation of Kubernetes, and its objects after a restart: etcd stores them.
func TestExactAssets(t *testing.T) {
	programs := t.TempDir()
	for name, program := range map[string]string{"keepwatch": peer.Keepwatch(t),
		"keepwatch-apiserver": peer.KeepwatchAPIServer(t)} {
		if err := os.Symlink(program, filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", programs)
	env := environment(t, assets(t, "--exact"))
	start(t, env)
	c := newClient(t, env)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "i", LivenessProbe: &corev1.Probe{PeriodSeconds: -1,
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt(80)}}},
		}}}}
	if err := c.Create(t.Context(), pod); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "spec.containers[0].livenessProbe.periodSeconds") {
		t.Errorf("a probe with a negative period, which keepwatch serve does not check: %v", err)
	}
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	if err := c.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	restart(t, env)
	found := &corev1.ConfigMap{}
	if err := newClient(t, env).Get(t.Context(), client.ObjectKeyFromObject(made), found); err != nil ||
		found.UID != made.UID {
		t.Errorf("the object was %s, and is %s: %v", made.UID, found.UID, err)
	}
}

func environment(t *testing.T, assets string) *envtest.Environment {
	t.Helper()
	return &envtest.Environment{BinaryAssetsDirectory: assets, ControlPlaneStartTimeout: await.Deadline,
		ControlPlaneStopTimeout: await.Deadline}
}

// start starts an environment for the duration of the test.
func start(t *testing.T, env *envtest.Environment) {
	t.Helper()
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	if _, err := env.Start(); err != nil {
		t.Fatal(err)
	}
}

// restart stops the API server, and starts it again.
func restart(t *testing.T, env *envtest.Environment) {
	t.Helper()
	server := env.ControlPlane.APIServer
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
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
