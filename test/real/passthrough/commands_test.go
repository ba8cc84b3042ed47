package passthrough

import (
	"bufio"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/scripts"
)

// kubectl's commands work through the proxy as at the server.
func testCommands(t *testing.T, c *cluster) {
	scripts.Run(t, c.proxy, "../../scripts/testdata", false, "apply", "drain", "edit", "wait", "watch")
}

// kubectl proxy in front of the proxy: reads, watches, the page, logs and streams.
func testKubectlProxy(t *testing.T, c *cluster) {
	container := c.run(t, "behind-kubectl-proxy", nil)
	s := c.session(t, c.proxy.Kubeconfig(), webSocket)
	served := s.start("proxy", "--port", "0", "--reject-paths", "^$")
	url := "http://" + regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(served.output.wait(t, 0, "Starting to serve on"))
	get := func(path string) *http.Response {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		c.must(err)
		response, err := http.DefaultClient.Do(q)
		c.must(err)
		t.Cleanup(func() { response.Body.Close() })
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", path, response.Status)
		}
		return response
	}
	for path, want := range map[string]string{
		"/api/v1/namespaces/default/pods?resourceVersion=0": `"behind-kubectl-proxy"`, "/keepwatch/": `<main id="status">`} {
		if text, err := io.ReadAll(get(path).Body); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %.500s, %v", path, text, err)
		}
	}
	for path, want := range map[string]string{
		"/api/v1/namespaces/default/pods?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Dbehind-kubectl-proxy": `{"type":"ADDED"`,
		"/api/v1/namespaces/default/pods/behind-kubectl-proxy/log?follow=true":                                         "started\n",
	} {
		if line, err := bufio.NewReader(get(path).Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, want) {
			t.Errorf("%s: %.500s, %v", path, line, err)
		}
	}
	for _, p := range protocols {
		if got := c.session(t, "/dev/null", p).succeed("--server", url, "exec", "behind-kubectl-proxy", "--", "echo",
			"done"); got != "done\n" {
			t.Errorf("%s: %q", p, got)
		}
	}
	await.True(t, "no command runs", func() bool { return container.busy() == 0 })
}
