package deploy

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

// cluster is a server to which charts are applied.
type cluster struct {
	*testing.T
	server  *peer.Server
	client  kubernetes.Interface
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func newCluster(t *testing.T, server *peer.Server, namespaces ...string) *cluster {
	c := &cluster{T: t, server: server}
	var err error
	c.client, err = kubernetes.NewForConfig(server.Config())
	c.must(err)
	c.dynamic, err = dynamic.NewForConfig(server.Config())
	c.must(err)
	about, err := discovery.NewDiscoveryClientForConfig(server.Config())
	c.must(err)
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(about))
	for _, name := range append(namespaces, installed) {
		_, err := c.client.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		c.must(err)
	}
	return c
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// apply applies objects as helm does, after a dry run of each. Unknown fields are errors.
func (c *cluster) apply(all []*unstructured.Unstructured) {
	c.Helper()
	for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
		for _, o := range all {
			kind := o.GroupVersionKind()
			mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
			if err != nil {
				c.Fatalf("%s: %v", kind, err)
			}
			namespace := ""
			if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
				if namespace = o.GetNamespace(); namespace == "" {
					c.Fatalf("%s %s has no namespace", kind, o.GetName())
				}
			} else if o.GetNamespace() != "" {
				c.Fatalf("%s %s has a namespace", kind, o.GetName())
			}
			text, err := json.Marshal(o)
			c.must(err)
			_, err = c.dynamic.Resource(mapping.Resource).Namespace(namespace).Patch(c.Context(), o.GetName(),
				types.ApplyPatchType, text,
				metav1.PatchOptions{FieldManager: "helm", DryRun: dryRun, FieldValidation: metav1.FieldValidationStrict})
			if err != nil {
				c.Fatalf("%s %s: %v\n%s", kind, o.GetName(), err, text)
			}
		}
	}
}

// kubeconfig returns a kubeconfig of a service account of the release.
func (c *cluster) kubeconfig(account string) string {
	c.Helper()
	token, err := c.client.CoreV1().ServiceAccounts(installed).CreateToken(c.Context(), account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	c.must(err)
	config := c.server.Config()
	config.BearerToken = token.Status.Token
	file := filepath.Join(c.TempDir(), "kubeconfig")
	c.must(peer.WriteKubeconfig(file, config))
	return file
}

// eventually waits until something is true.
func (c *cluster) eventually(what string, is func() bool) {
	c.Helper()
	await.True(c, what, is)
}

// kinds returns the kinds of objects, sorted.
func kinds(all []*unstructured.Unstructured) (names []string) {
	for _, o := range all {
		names = append(names, o.GetKind())
	}
	slices.Sort(names)
	return names
}
