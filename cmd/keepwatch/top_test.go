package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/proxy"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// screen is a terminal of one page, as a person sees it after what was written to it.
type screen struct{ bytes.Buffer }

// lines returns what the terminal shows.
func (s *screen) lines() string {
	frames := strings.Split(s.String(), "\x1b[H")
	return strings.NewReplacer("\x1b[K", "", "\x1b[J", "", "\x1b[2J", "").Replace(frames[len(frames)-1])
}

// The table shows what the proxy does. In a terminal it is refreshed in place, also while the proxy is down.
func TestTop(t *testing.T) {
	parallel(t)
	quietCluster(t)
	file := filepath.Join(t.TempDir(), "proxy.kubeconfig")
	p := startProcess(t, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig-out", file)
	p.waitStderr(t, "keepwatch: proxy of ")
	config := configOf(t, file)
	config.UserAgent = "hostile\u202e/1.0 (x)"
	client := kubernetes.NewForConfigOrDie(config)
	row := regexp.MustCompile(`(?m)^configmaps +v1 +(json|protobuf) +LIVE +\d+s ago +\d+ +[\d.]+(Ki)? +0 +0$`)
	var text string
	await.State(t, "the table has a row of config maps", func() (bool, string) {
		if _, err := client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := execute(t, "top", "--kubeconfig", file)
		if code != 0 || stderr != "" || strings.Contains(stdout, "\x1b") {
			t.Fatalf("exit %d, stderr %q, stdout %q", code, stderr, stdout)
		}
		text = stdout
		return row.MatchString(text), text
	})
	t.Logf("the table:\n%s", text)
	if reads := regexp.MustCompile(`(?m)^configmaps +v1 +[1-9]\d* of [1-9]\d* +- +- +\S+ of \S+ +\d`); !reads.MatchString(
		text) {
		t.Errorf("no row has the lists of config maps:\n%s", text)
	}
	if !strings.Contains(text, " answers. ") || !strings.Contains(text, "hostile?/1.0 ") {
		t.Errorf("the table:\n%s", text)
	}

	var terminal screen
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	shown := make(chan string)
	d, err := discovery.NewDiscoveryClientForConfig(configOf(t, file))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(shown)
		ended <- proxy.RefreshTop(ctx, d, writerFunc(func(b []byte) {
			terminal.Write(b)
			select {
			case shown <- terminal.lines():
			case <-ctx.Done():
			}
		}), func() (int, int, error) { return 200, 50, nil }, time.Millisecond)
	}()
	if first := <-shown; !row.MatchString(first) {
		t.Errorf("the terminal shows\n%s", first)
	}
	if second := <-shown; !row.MatchString(second) || strings.Count(second, "RESOURCE") != 1 {
		t.Errorf("after a refresh the terminal shows\n%s", second)
	}
	terminate(t, p)
	last := ""
	for begun := time.Now(); strings.HasPrefix(last, "https://") || last == ""; { // until an error is above the table
		text, ok := <-shown
		if !ok || time.Since(begun) > await.Deadline {
			t.Errorf("the terminal shows no error above\n%s", last)
			break
		}
		last = text
	}
	if !strings.Contains(last, " answers. ") || !strings.Contains(last, "\nRESOURCE ") {
		t.Errorf("at the end the terminal shows\n%s", last)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

// In a real terminal the table is refreshed in place, also if it has more lines than the terminal, and fits a changed
// size. An interrupt ends it.
func TestTopInTerminal(t *testing.T) {
	parallel(t)
	if testing.Short() {
		t.Skip("with -short keepwatch top is NOT tested in a terminal")
	}
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("no tmux: keepwatch top is NOT tested in a terminal (make debian)")
	}
	quietCluster(t)
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "proxy.kubeconfig"), filepath.Join(dir, "tmux")
	p := startProcess(t, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig-out", file)
	p.waitStderr(t, "keepwatch: proxy of ")
	client := kubernetes.NewForConfigOrDie(configOf(t, file))
	tmux := func(args ...string) string {
		out, _ := exec.Command("tmux", append([]string{"-S", socket}, args...)...).CombinedOutput()
		return string(out)
	}
	t.Cleanup(func() { tmux("kill-server") })
	startWith(t, []string{"tmux", "-S", socket, "-f", "/dev/null", "new-session", "-d", "-x", "60", "-y", "6"}, "top",
		"--kubeconfig", file)
	shows := func(what string, ok func(lines []string) bool) {
		t.Helper()
		await.State(t, what, func() (bool, string) {
			if _, err := client.CoreV1().ConfigMaps("").List(t.Context(),
				metav1.ListOptions{ResourceVersion: "0"}); err != nil && p.ProcessState == nil {
				t.Log(err) // the proxy may be down by now
			}
			shown := tmux("capture-pane", "-p")
			return ok(strings.Split(strings.TrimRight(shown, "\n"), "\n")), shown
		})
		if scrolled := strings.TrimSpace(tmux("display-message", "-p", "#{history_size}")); scrolled != "0" {
			t.Errorf("%s: the terminal's scrollback has %s lines", what, scrolled)
		}
	}
	begins := func(line, with string) bool { return strings.HasPrefix(line, with) }
	shows("small", func(l []string) bool {
		return len(l) == 6 && begins(l[0], "https://") && len(l[0]) == 59 && begins(l[2], "RESOURCE") &&
			strings.HasSuffix(l[5], "enlarge the terminal")
	})
	tmux("resize-window", "-x", "200", "-y", "50")
	shows("enlarged", func(l []string) bool {
		return len(l) > 6 && begins(l[0], "https://") && strings.Contains(l[0], "GET") && begins(l[2], "RESOURCE") &&
			slices.ContainsFunc(l, func(line string) bool { return begins(line, "CLIENT") }) &&
			!strings.Contains(strings.Join(l, ""), "enlarge")
	})
	terminate(t, p)
	shows("without the proxy", func(l []string) bool {
		return len(l) > 6 && strings.Contains(l[0], "refused") && begins(l[1], "https://")
	})
	tmux("send-keys", "C-c")
	await.True(t, "an interrupt ends it", func() bool { return !strings.Contains(tmux("list-sessions"), "1 windows") })
}

// Without a proxy, one sentence says what to do.
func TestTopWithoutProxy(t *testing.T) {
	parallel(t)
	quietCluster(t)
	if code, stdout, stderr := execute(t, "top"); code != 1 || stdout != "" ||
		!strings.Contains(stderr, "this server is no keepwatch proxy: give the proxy's kubeconfig") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if code, _, stderr := execute(t, "top", "argument"); code != 2 {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// A user without the permission learns which one is missing, and what the proxy says is shown.
func TestTopRefused(t *testing.T) {
	for code, want := range map[int]string{
		http.StatusForbidden:          "must allow the verb get on the nonResourceURLs /keepwatch/status",
		http.StatusUnauthorized:       "the proxy does not know the user",
		http.StatusServiceUnavailable: "why it is so",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"why it is so","code":%d}`,
				code)
		}))
		file := filepath.Join(t.TempDir(), "kubeconfig")
		if err := cluster.WriteKubeconfig(file, "refused", &rest.Config{Host: server.URL, BearerToken: "token"}); err != nil {
			t.Fatal(err)
		}
		if exit, stdout, stderr := execute(t, "top", "--kubeconfig", file); exit != 1 || stdout != "" ||
			!strings.Contains(stderr, want) {
			t.Errorf("%d: exit %d, %q, %q", code, exit, stdout, stderr)
		}
		server.Close()
	}
}
