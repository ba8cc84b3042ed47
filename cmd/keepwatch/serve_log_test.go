package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// Clients that send a wrong token, or disconnect during a response or a watch, are not logged.
func TestServeLogsNoDisconnects(t *testing.T) {
	parallel(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	p := startProcess(t, "serve", "--controllers=false", "--listen", "127.0.0.1:0", "--kubeconfig-out", file)
	line := p.waitReady(t)
	config := configOf(t, file)
	fill(t, config)
	for _, protocol := range []string{"http/1.1", "h2"} {
		client := rest.CopyConfig(config)
		client.NextProtos = []string{protocol}
		for range 3 {
			disconnectDuring(t, client, "/api/v1/configmaps")
			disconnectDuring(t, client, "/api/v1/configmaps?resourceVersion=0")
			disconnectDuring(t, client, "/api/v1/configmaps?watch=1")
			disconnectBefore(t, client, "/api/v1/configmaps")
		}
		for _, token := range []string{"", "wrong"} {
			client.BearerToken = token
			unauthorized(t, client)
		}
	}
	waitNoWatches(t, config)
	p.Process.Signal(syscall.SIGTERM)
	if code := p.exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	if text := p.stderr.String(); text != line {
		t.Errorf("stderr also has: %s", strings.TrimPrefix(text, line))
	}
}

// fill creates a list of configmaps that is longer than the buffers between server and client.
func fill(t *testing.T, config *rest.Config) {
	client := kubernetes.NewForConfigOrDie(config)
	for range 40 {
		big := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "big-"},
			Data: map[string]string{"x": strings.Repeat("content ", 60<<10)}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), big, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// disconnectDuring disconnects after the response has begun.
func disconnectDuring(t *testing.T, config *rest.Config, path string) {
	client := httpClient(t, config)
	answer, err := client.Get(config.Host + path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, answer.Body, 1<<10); err != nil {
		t.Errorf("%s: %s, %v", path, answer.Status, err)
	}
	answer.Body.Close()
	client.CloseIdleConnections()
}

// disconnectBefore disconnects before the response, or soon after its beginning.
func disconnectBefore(t *testing.T, config *rest.Config, path string) {
	for wait := time.Millisecond; wait < 100*time.Millisecond; wait *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		client := httpClient(t, config)
		if answer, err := client.Do(request); err == nil {
			answer.Body.Close()
		}
		client.CloseIdleConnections()
		cancel()
	}
}

func unauthorized(t *testing.T, config *rest.Config) {
	client := httpClient(t, config)
	defer client.CloseIdleConnections()
	answer, err := client.Get(config.Host + "/api/v1/configmaps")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("the token %q: %s", config.BearerToken, answer.Status)
	}
}

// httpClient returns a client with its own connections.
func httpClient(t *testing.T, config *rest.Config) *http.Client {
	own := rest.CopyConfig(config)
	tls, err := rest.TLSConfigFor(own)
	if err != nil {
		t.Fatal(err)
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(own.NextProtos[0] == "http/1.1")
	protocols.SetHTTP2(own.NextProtos[0] == "h2")
	wrapped, err := rest.HTTPWrappersForConfig(own, &http.Transport{TLSClientConfig: tls, Protocols: protocols})
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: wrapped}
}

// waitNoWatches waits until the server has ended all watches of configmaps.
func waitNoWatches(t *testing.T, config *rest.Config) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	open := regexp.MustCompile(`^apiserver_longrunning_requests\{.*resource="configmaps".*\} [1-9]`)
	for end := time.Now().Add(await.Deadline); time.Now().Before(end); {
		if !metricsMatch(t, client, config.Host, open) {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Error("watches whose clients have gone are still open")
}

func metricsMatch(t *testing.T, client *http.Client, host string, line *regexp.Regexp) bool {
	answer, err := client.Get(host + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	found := false
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		found = found || line.MatchString(lines.Text())
	}
	return found
}
