package manager_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/internal/testonly/child"
)

func TestMainServesAndEndsOnSIGTERM(t *testing.T) {
	namespace := newNamespace(t)
	health, metrics := child.Address(t), child.Address(t)
	c := exec.Command(os.Args[0], "--kubeconfig", kubeconfig(t, api), "--health-probe-bind-address="+health,
		"--metrics-bind-address="+metrics, "--leader-elect", "--leader-elect-resource-namespace="+namespace,
		"--log-format=json")
	c.Env = append(os.Environ(), asProgram+"="+namespace)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill() }() // it has ended, unless the test has failed
	_, err := clients.CoreV1().ConfigMaps(namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await.State(t, "the ConfigMap is handled", func() (bool, string) {
		one, err := clients.CoreV1().ConfigMaps(namespace).Get(t.Context(), "one", metav1.GetOptions{})
		return err == nil && one.Data["answer"] == "42", fmt.Sprint(one, err)
	})
	for url, wants := range map[string][]string{
		"http://" + health + "/healthz": {"configmaps: ok"},
		"http://" + health + "/readyz":  {"ok"},
		"http://" + metrics + "/metrics": {
			`keepwatch_operator_handler_duration_seconds_count{controller="configmaps",handler="answer",result="success"} 1`,
			"workqueue_depth", "controller_runtime_reconcile_total", "keepwatch_watch_",
		},
	} {
		code, body := read(t, url)
		if code != http.StatusOK {
			t.Errorf("%s answers %d", url, code)
		}
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s: want %q in\n%s", url, want, body)
			}
		}
	}
	if holder := holderOf(t, namespace); holder == "" {
		t.Error("the lease has no holder")
	}
	_ = c.Process.Signal(syscall.SIGTERM)
	if err := c.Wait(); err != nil {
		t.Errorf("the program ends with %v:\n%s", err, stderr.String())
	}
	if holder := holderOf(t, namespace); holder != "" {
		t.Errorf("%s has not released the lease", holder)
	}
}

func read(t *testing.T, url string) (code int, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func holderOf(t *testing.T, namespace string) string {
	t.Helper()
	lease, err := clients.CoordinationV1().Leases(namespace).Get(t.Context(), "configmaps", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// kubeconfig writes a kubeconfig file for a server.
func kubeconfig(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}
