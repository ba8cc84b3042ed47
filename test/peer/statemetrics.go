package peer

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
)

// StateMetrics is a running kube-state-metrics.
type StateMetrics struct {
	*Service
	// URL is that of its metrics, without a path.
	URL string
}

// StartStateMetrics starts a kube-state-metrics with a client configuration, for the duration of the test. The flags
// follow the default ones and override them.
func StartStateMetrics(tb testing.TB, config *rest.Config, flags ...string) *StateMetrics {
	tb.Helper()
	m, err := startStateMetrics(tb.Context(), tb.TempDir(), config, flags)
	own(tb, m.Service, err)
	return m
}

func startStateMetrics(ctx context.Context, dir string, config *rest.Config, flags []string) (*StateMetrics, error) {
	path, err := KubeStateMetrics.Path(ctx)
	if err != nil {
		return &StateMetrics{}, err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := WriteKubeconfig(kubeconfig, config); err != nil {
		return &StateMetrics{}, err
	}
	m := &StateMetrics{}
	m.Service = &Service{
		name: "kube-state-metrics", path: path, log: filepath.Join(dir, "kube-state-metrics.log"),
		probe: m.answers,
	}
	return m, m.launch(ctx, func(port int) {
		m.URL = fmt.Sprintf("http://127.0.0.1:%d", port)
		m.args = append([]string{
			"--kubeconfig", kubeconfig, "--host", "127.0.0.1", "--port", fmt.Sprint(port),
			"--telemetry-host", "127.0.0.1", "--telemetry-port", "0",
		}, flags...)
	})
}

func (m *StateMetrics) answers(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.URL+"/livez", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/livez: %s", response.Status)
	}
	return nil
}
