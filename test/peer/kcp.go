package peer

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// kcpWorkspace is the workspace that the clients of a kcp use.
const kcpWorkspace = "used"

// KCPWorkspace starts an etcd and a kcp on it for the duration of the test. Its clients use one workspace as its
// administrator.
func KCPWorkspace(tb testing.TB) *Server {
	tb.Helper()
	s, err := startKCP(tb.Context(), tb.TempDir(), StartEtcd(tb))
	own(tb, s.Service, err)
	if err := createWorkspace(tb.Context(), s.config, kcpWorkspace); err != nil {
		tb.Fatal(err)
	}
	s.config.Host += ":" + kcpWorkspace
	return s
}

func startKCP(ctx context.Context, dir string, etcd *EtcdServer) (*Server, error) {
	s := &Server{endpoint: etcd.Endpoint, etcd: etcd}
	path, err := KCP.Path(ctx)
	if err != nil {
		return s, err
	}
	c, err := newCredentials(dir)
	if err != nil {
		return s, err
	}
	// kcp's own administrator has another token after each start.
	token, tokens := rand.Text(), filepath.Join(dir, "kcp-tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",admin,admin,system:kcp:admin\n"), 0o600); err != nil {
		return s, err
	}
	s.Service = &Service{
		name: "kcp", path: path, log: filepath.Join(dir, "kcp.log"),
		probe: s.ready,
	}
	return s, s.launch(ctx, func(port int) {
		s.config = &rest.Config{
			Host:            fmt.Sprintf("https://127.0.0.1:%d/clusters/root", port),
			BearerToken:     token,
			TLSClientConfig: rest.TLSClientConfig{CAData: c.ca},
			QPS:             -1,
		}
		s.args = []string{
			"start",
			"--root-directory", filepath.Join(dir, "kcp"),
			"--etcd-servers", string(etcd.Endpoint),
			"--bind-address", "127.0.0.1",
			"--external-hostname", "127.0.0.1",
			"--secure-port", fmt.Sprint(port),
			"--tls-cert-file", c.cert,
			"--tls-private-key-file", c.key,
			"--token-auth-file", tokens,
			// Tests compact the history themselves.
			"--etcd-compaction-interval", "0",
		}
	})
}

// createWorkspace creates a workspace of the root workspace, and waits until it is ready.
func createWorkspace(ctx context.Context, root *rest.Config, name string) error {
	client, err := dynamic.NewForConfig(root)
	if err != nil {
		return err
	}
	workspaces := client.Resource(schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1",
		Resource: "workspaces"})
	workspace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"type": map[string]any{"name": "universal", "path": "root"}},
	}}
	ctx, cancel := context.WithTimeout(ctx, await.Deadline)
	defer cancel()
	var failed error
	// The type universal is created a while after kcp is ready.
	if err := wait.PollUntilContextCancel(ctx, probeInterval, true, func(ctx context.Context) (bool, error) {
		_, failed = workspaces.Create(ctx, workspace, metav1.CreateOptions{})
		return failed == nil || apierrors.IsAlreadyExists(failed), nil
	}); err != nil {
		return fmt.Errorf("creating workspace %s: %w, %w", name, err, failed)
	}
	var status any
	if err := wait.PollUntilContextCancel(ctx, probeInterval, true, func(ctx context.Context) (bool, error) {
		o, err := workspaces.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		status = o.Object["status"]
		phase, _, err := unstructured.NestedString(o.Object, "status", "phase")
		return phase == "Ready", err
	}); err != nil {
		return fmt.Errorf("workspace %s has the status %v: %w", name, status, err)
	}
	return nil
}
