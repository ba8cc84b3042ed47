package past

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// A browser shows the timeline and a difference, with the page's style, and executes nothing of the objects.
func TestPageInBrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium: the page is NOT tested in a browser (make debian)")
	}
	r := &rig{T: t, dir: t.TempDir(), random: rand.New(rand.NewPCG(1, 1))} // for the names of logs
	live, past := filepath.Join(r.dir, "live"), filepath.Join(r.dir, "past.kubeconfig")
	r.start("ready in", "serve", "--controllers=false", "--listen", "127.0.0.1:0", "--kubeconfig-out", live)
	r.start("synced at", "sync", "configmaps", "-A", "--to", r.database(), "--kubeconfig", live, "--cache-dir", r.dir)
	config, err := clientcmd.BuildConfigFromFlags("", live)
	if err != nil {
		t.Fatal(err)
	}
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	hostile := `<img src=x onerror="document.title='executed'">`
	_, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Data: map[string]string{"color": "green"}}, metav1.CreateOptions{})
	if err == nil {
		_, err = maps.Patch(t.Context(), "web", types.JSONPatchType, []byte(`[{"op":"replace","path":"/data/color","value":"`+
			strings.ReplaceAll(hostile, `"`, `\"`)+`"}]`), metav1.PatchOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	r.start("at/MOMENT", "serve", "--history", r.database(), "--listen", "127.0.0.1:0", "--kubeconfig-out", past)
	if config, err = clientcmd.BuildConfigFromFlags("", past); err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(strings.TrimSuffix(config.Host, "/at/now"))
	if err != nil {
		t.Fatal(err)
	}
	var styled atomic.Int32
	front := httptest.NewServer(&httputil.ReverseProxy{ // as kubectl proxy: it adds the credentials
		Rewrite:   func(q *httputil.ProxyRequest) { q.SetURL(to) },
		Transport: transport,
		ModifyResponse: func(response *http.Response) error {
			if response.StatusCode == http.StatusOK && strings.HasSuffix(response.Request.URL.Path, "/page.css") {
				styled.Add(1)
			}
			return nil
		},
	})
	defer front.Close()
	page := front.URL + "/keepwatch/?type=configmaps&namespace=default&name=web"
	mark := regexp.MustCompile(`<a href="([^"#]*)[^"]*" class="(?:several|modified)"><title>[^<]*</title><path`)
	var shown [][]byte
	r.until("the timeline has the change", func() bool {
		shown = mark.FindSubmatch(browse(t, browser, page))
		return shown != nil && strings.Contains(string(shown[0]), "changes from")
	})
	address := front.URL + "/keepwatch/" + strings.ReplaceAll(string(shown[1]), "&amp;", "&")
	dom := string(browse(t, browser, address))
	if !strings.Contains(dom, `<span class="plus">+  color: &lt;img src=x`) ||
		!strings.Contains(dom, "<title>keepwatch history: configmaps</title>") {
		t.Errorf("the difference in the browser:\n%s", dom)
	}
	if styled.Load() == 0 {
		t.Error("the browser has not loaded the style")
	}
}

// browse returns the document that a browser has of a page when it has loaded.
func browse(t *testing.T, browser, page string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Deadline)
	defer cancel()
	run := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir="+t.TempDir(),
		"--window-size=1100,700", "--dump-dom", page)
	run.WaitDelay = time.Minute
	var messages bytes.Buffer
	run.Stderr = &messages
	dom, err := run.Output()
	if err != nil {
		t.Fatalf("the browser: %v\n%s", err, messages.String())
	}
	return dom
}
