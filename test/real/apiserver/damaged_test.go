package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

// A pod that cannot be decoded, as after the loss of a key of the encryption at rest, keeps a server from being ready,
// but not from being live: a kubelet would start it again and again, and nobody could repair it. The loop of modes
// shows that kube-apiserver does the same.
func TestLiveWithDamagedPod(t *testing.T) {
	modes := []string{"--reads=keepwatch", "--reads=upstream"}
	if testing.Short() {
		modes = modes[:1]
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			server := peer.KeepwatchAPIServerOn(t, peer.StartEtcd(t), append(common, mode)...)
			etcd, err := server.Etcd().Client()
			if err != nil {
				t.Fatal(err)
			}
			defer etcd.Close()
			const key = "/registry/pods/default/damaged"
			if _, err := etcd.Put(t.Context(), key, "k8s:enc:kms:v2:lost:?"); err != nil {
				t.Fatal(err)
			}
			server.Kill()
			ready := make(chan error, 1)
			go func() { ready <- server.Restart(t.Context()) }()
			client := kubernetes.NewForConfigOrDie(server.Config())
			untilProbe(t, client, "/livez", http.StatusOK)
			if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(),
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "live-"}}, metav1.CreateOptions{}); err != nil {
				t.Errorf("the administrator cannot write: %v", err)
			}
			config := server.Config()
			config.Impersonate = rest.ImpersonationConfig{UserName: "nobody-knows"}
			if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default").Get(t.Context(), "any",
				metav1.GetOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("a user without rights: %v, want 403", err)
			}
			if answer := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()); !strings.Contains(
				fmt.Sprint(answer.Error()), "[-]informer-sync failed") {
				t.Errorf("/readyz without the pods: %v", answer.Error())
			}
			if _, err := etcd.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if err := <-ready; err != nil {
				t.Errorf("repaired, the server is not ready: %v", err)
			}
			if _, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Errorf("repaired: %v", err)
			}
		})
	}
}

// untilProbe waits until a probe has a status.
func untilProbe(t *testing.T, client kubernetes.Interface, path string, code int) {
	t.Helper()
	await.State(t, fmt.Sprintf("%s answers %d", path, code), func() (bool, string) {
		status := probe(t.Context(), client, path)
		return status == code, fmt.Sprint(status)
	})
}

// probe returns the status of a probe, zero without an answer.
func probe(ctx context.Context, client kubernetes.Interface, path string) (code int) {
	client.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).StatusCode(&code)
	return code
}
