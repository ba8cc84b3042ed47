package envtest

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// whoami returns the user of a client configuration.
func whoami(t *testing.T, config *rest.Config) authenticationv1.UserInfo {
	t.Helper()
	review := &authenticationv1.SelfSubjectReview{}
	if err := newClient(t, config).Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}

// An environment with definitions from a folder, its administrator, another user, its kubeconfig and its kubectl.
func TestEnvironment(t *testing.T) {
	env := environment(t, assets(t))
	env.CRDDirectoryPaths, env.ErrorIfCRDPathMissing = []string{"testdata/crds"}, true
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	admin := newClient(t, config)

	t.Run("definitions", func(t *testing.T) {
		if err := admin.Create(t.Context(), gadget("invalid", -1)); !apierrors.IsInvalid(err) ||
			!strings.Contains(err.Error(), "spec.size") {
			t.Errorf("an invalid object is answered: %v", err)
		}
		if err := admin.Create(t.Context(), gadget("valid", 3)); err != nil {
			t.Fatal(err)
		}
		found := gadget("valid", 0)
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(found), found); err != nil {
			t.Fatal(err)
		}
		if color, _, _ := unstructured.NestedString(found.Object, "spec", "color"); color != "blue" {
			t.Errorf("the default of the color is %q", color)
		}
	})

	t.Run("users", func(t *testing.T) {
		if user := whoami(t, config); user.Username != "admin" || !slices.Contains(user.Groups, "system:masters") {
			t.Errorf("the administrator is %+v", user)
		}
		jane, err := env.AddUser(envtest.User{Name: "jane", Groups: []string{"a", "b"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if user := whoami(t, jane.Config()); user.Username != "jane" ||
			!slices.Equal(user.Groups, []string{"a", "b", "system:authenticated"}) {
			t.Errorf("jane is %+v", user)
		}
		if err := newClient(t, jane.Config()).Get(t.Context(), client.ObjectKey{Name: "default"},
			&corev1.Namespace{}); !apierrors.IsForbidden(err) {
			t.Errorf("jane without a role: %v", err)
		}
		nobody := rest.AnonymousClientConfig(config)
		if err := newClient(t, nobody).Get(t.Context(), client.ObjectKey{Name: "default"},
			&corev1.Namespace{}); !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
			t.Errorf("without a certificate: %v", err)
		}
	})

	t.Run("namespaces are finalized", func(t *testing.T) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "temporary"}}
		inside := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "temporary", Name: "inside"}}
		for _, o := range []client.Object{namespace, inside} {
			if err := admin.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		if err := admin.Delete(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
		await.State(t, "the namespace is gone", func() (bool, string) {
			err := admin.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace)
			return apierrors.IsNotFound(err), fmt.Sprint(namespace.Status, err)
		})
	})

	t.Run("kubeconfig", func(t *testing.T) {
		fromFile, err := clientcmd.RESTConfigFromKubeConfig(env.KubeConfig)
		if err != nil {
			t.Fatal(err)
		}
		if user := whoami(t, fromFile); user.Username != "admin" {
			t.Errorf("the user is %+v", user)
		}
	})

	t.Run("kubectl", func(t *testing.T) {
		jane, err := env.AddUser(envtest.User{Name: "jane", Groups: []string{"system:masters"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		kubectl, err := jane.Kubectl()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"create", "configmap", "a", "--from-literal", "k=v"}, "configmap/a created\n"},
			{[]string{"get", "configmap", "a", "-o", "jsonpath={.data.k}"}, "v"},
			{[]string{"auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"}, "jane"},
			{[]string{"delete", "configmap", "a"}, "configmap \"a\" deleted from default namespace\n"},
		} {
			stdout, stderr, err := kubectl.Run(c.args...)
			text, _ := io.ReadAll(stdout)
			problem, _ := io.ReadAll(stderr)
			if err != nil || string(text) != c.want {
				t.Errorf("kubectl %q: %v, %q, %s", c.args, err, text, problem)
			}
		}
		stdout, stderr, err := kubectl.Run("get", "configmap", "a")
		problem, _ := io.ReadAll(stderr)
		// with -race a line precedes it
		if err == nil || !strings.HasSuffix(string(problem), "Error from server (NotFound): configmaps \"a\" not found\n") {
			t.Errorf("a missing object: %v, %v, %q", err, stdout, problem)
		}
	})
}

// An environment is started again after its stop, and is empty then.
func TestEnvironmentStartsAgain(t *testing.T) {
	env := environment(t, assets(t))
	for range 2 {
		config, err := env.Start()
		if err != nil {
			t.Fatal(err)
		}
		if err := newClient(t, config).Create(t.Context(), configMap("a")); err != nil {
			t.Error(err)
		}
		if err := env.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// Environments at the same time have nothing in common.
func TestEnvironmentsInParallel(t *testing.T) {
	dir := assets(t)
	t.Run("all", func(t *testing.T) {
		for i := range 4 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				config, err := environment(t, dir).Start()
				if err != nil {
					t.Fatal(err)
				}
				c := newClient(t, config)
				if err := c.Create(t.Context(), configMap(fmt.Sprint("of-", i))); err != nil {
					t.Fatal(err)
				}
				if names := configMaps(t, c); !slices.Equal(names, []string{fmt.Sprint("of-", i)}) {
					t.Errorf("environment %d has %q", i, names)
				}
			})
		}
	})
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

// configMaps returns the names of the ConfigMaps of tests in the namespace default.
func configMaps(t *testing.T, c client.Client) []string {
	t.Helper()
	var list corev1.ConfigMapList
	if err := c.List(t.Context(), &list, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range list.Items {
		if o.Name != "kube-root-ca.crt" {
			names = append(names, o.Name)
		}
	}
	return names
}

func gadget(name string, size int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Gadget",
		"metadata": map[string]any{"namespace": "default", "name": name},
		"spec":     map[string]any{"size": size},
	}}
}
