package main

import (
	"bytes"
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/proxy"
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
	cluster(t)
	file := filepath.Join(t.TempDir(), "proxy.kubeconfig")
	p := startProcess(t, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig-out", file)
	waitLine(t, p, "keepwatch: proxy of ")
	config := configOf(t, file)
	config.UserAgent = "hostile\u202e/1.0 (x)"
	client := kubernetes.NewForConfigOrDie(config)
	row := regexp.MustCompile(`(?m)^configmaps +v1 +(json|protobuf) +LIVE +\d+s ago +\d+ +[\d.]+(Ki)? +0 +0$`)
	var text string
	for begun := time.Now(); !row.MatchString(text); time.Sleep(50 * time.Millisecond) {
		if _, err := client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := execute(t, "top", "--kubeconfig", file)
		if code != 0 || stderr != "" || strings.Contains(stdout, "\x1b") {
			t.Fatalf("exit %d, stderr %q, stdout %q", code, stderr, stdout)
		}
		if text = stdout; time.Since(begun) > time.Minute {
			t.Fatalf("there is no row of config maps in\n%s", text)
		}
	}
	t.Logf("the table:\n%s", text)
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
		ended <- refreshTop(ctx, d, writerFunc(func(b []byte) {
			terminal.Write(b)
			select {
			case shown <- terminal.lines():
			case <-ctx.Done():
			}
		}), time.Millisecond)
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
		if !ok || time.Since(begun) > deadline {
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

// Without a proxy, one sentence says what to do.
func TestTopWithoutProxy(t *testing.T) {
	cluster(t)
	if code, stdout, stderr := execute(t, "top"); code != 1 || stdout != "" || !strings.Contains(stderr, "this server is no keepwatch proxy: give the proxy's kubeconfig") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if code, _, stderr := execute(t, "top", "argument"); code != 2 {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1023: "1023", 1024: "1.0Ki", 1536 << 10: "1.5Mi", 3 << 30: "3.0Gi"} {
		if got := proxy.Size(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
