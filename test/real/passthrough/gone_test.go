package passthrough

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

// open starts every kind of stream to a pod, some of each, and waits until all have begun.
func (c *cluster) open(t *testing.T, name string, each int) (all []*started) {
	t.Helper()
	container := c.run(t, name, map[int32]string{80: repeater(t)})
	for _, p := range protocols {
		s := c.session(t, c.proxy.Kubeconfig(), p)
		for range each {
			attached := s.start("attach", "-i", name)
			_, err := fmt.Fprintln(attached.stdin, "hello")
			c.must(err)
			attached.output.wait(t, 0, "heard hello")
			log := s.start("logs", "-f", name)
			log.output.wait(t, 0, "started")
			watch := s.start("get", "pods", "--watch")
			watch.output.wait(t, 0, name)
			forward := s.start("port-forward", name, ":80")
			connection := value(net.Dial("tcp", forward.forwarded(t)))(t)
			t.Cleanup(func() { connection.Close() })
			all = append(all, attached, log, watch, forward, s.start("exec", "-i", name, "--", "cat"),
				s.start(append([]string{"exec", name, "--"}, ticking...)...))
		}
	}
	await.True(t, "all streams are open", func() bool { return container.busy() == 3*each*len(protocols) })
	return all
}

// streams returns how many goroutines of the proxy forward requests, and how many sockets it has.
func (c *cluster) streams() (goroutines, sockets int) {
	c.Helper()
	text := c.get(c.proxy, "/debug/pprof/goroutine?debug=1")
	for group := range strings.SplitSeq(text, "\n\n") {
		if n, _, _ := strings.Cut(group, " @ "); strings.Contains(group, "/pkg/util/proxy.") ||
			strings.Contains(group, "net/http/httputil.") {
			count, err := strconv.Atoi(n)
			c.must(err)
			goroutines += count
		}
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", c.proxy.Process().PID()))
	c.must(err)
	for _, file := range files {
		if to, _ := os.Readlink(file); strings.HasPrefix(to, "socket:") {
			sockets++
		}
	}
	return goroutines, sockets
}

// get requests a path as the administrator.
func (c *cluster) get(from *peer.Server, path string) string {
	c.Helper()
	client := value(rest.HTTPClientFor(from.Config()))(c)
	q, err := http.NewRequestWithContext(c.Context(), http.MethodGet, from.Config().Host+path, nil)
	c.must(err)
	response, err := client.Do(q)
	c.must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	c.must(err)
	if response.StatusCode != http.StatusOK {
		c.Fatalf("%s: %s %s", path, response.Status, text)
	}
	return string(text)
}

// Clients that are killed leave nothing: no process behind them, no goroutine and no connection of the proxy.
func testGoneClients(t *testing.T, c *cluster) {
	const each = 2
	c.get(c.proxy, "/version") // connects
	var before int
	await.True(t, "nothing is left of earlier clients", func() bool {
		var quiet int
		quiet, before = c.streams()
		return quiet == 0
	})
	all := c.open(t, "abandoned", each)
	if goroutines, sockets := c.streams(); goroutines < len(all) || sockets < before+len(all) {
		t.Fatalf("%d goroutines and %d sockets for %d streams, and %d sockets before", goroutines, sockets, len(all), before)
	}
	for _, r := range all {
		c.must(r.Process.Kill())
	}
	// The kubelet ends commands with their streams.
	container := c.kubelet.container("default/abandoned")
	await.True(t, "no command runs", func() bool { return container.busy() == 0 })
	var goroutines, sockets int
	defer func() {
		t.Logf("%d streams: %d goroutines and %d sockets are left, %d sockets before", len(all), goroutines, sockets, before)
	}()
	await.True(t, "the proxy has no goroutine and no connection of theirs", func() bool {
		goroutines, sockets = c.streams()
		return goroutines == 0 && sockets <= before+2 // to the server, for other requests
	})
}

// The streams end with the proxy, and when the server is killed.
func testGoneServer(t *testing.T, c *cluster) {
	all := c.open(t, "before-the-proxy", 1)
	c.must(c.proxy.Stop())
	for _, r := range all {
		r.end(t)
	}
	c.must(c.proxy.Restart(t.Context()))
	all = c.open(t, "before-the-server", 1)
	c.server.Kill()
	for _, r := range all {
		r.end(t)
	}
}
