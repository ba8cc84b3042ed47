package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/proxy"
)

var screenshot = flag.String("proxy.screenshot", "", "write what the browser shows of the page to this file, as PNG")

var mapsRow = regexp.MustCompile(
	`<tr><td>configmaps</td><td>v1</td><td>json</td><td class="live">LIVE</td><td>(\d+m)?\d+s ago</td>\s*<td>\d+</td><td>[\d.]+Ki</td><td>0</td>`)

// allowPage lets the reader get the page.
func (r *rig) allowPage() {
	r.Helper()
	_, err := r.admin.RbacV1().ClusterRoles().Create(r.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "page"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"},
			NonResourceURLs: []string{"/keepwatch/*"}}},
	}, metav1.CreateOptions{})
	r.must(err)
	_, err = r.admin.RbacV1().ClusterRoleBindings().Create(r.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "page"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "page"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "reader", Namespace: "default"}},
	}, metav1.CreateOptions{})
	r.must(err)
	r.eventually("the page is allowed", func() bool { return r.proxy("/keepwatch/").code == http.StatusOK })
}

// The page shows what the proxy does, to those who may see it, and nothing that a client sends is taken for HTML.
func TestPage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(20)
	r.waitCached(maps + "?resourceVersion=0")
	r.proxy(maps+"?resourceVersion=0", "User-Agent", "<script>alert(1)</script>/1.0 (x)")
	if got := r.proxy("/keepwatch/"); got.code != http.StatusForbidden {
		t.Errorf("without permission: %d", got.code)
	}
	r.allowPage()
	page := r.proxy("/keepwatch/")
	if !mapsRow.MatchString(page.body) || !strings.Contains(page.body, "&lt;script&gt;alert(1)&lt;/script&gt;/1.0<") ||
		strings.Contains(page.body, "<script>alert") {
		t.Errorf("the page: %s", page.body)
	}
	if csp := page.header.Get("Content-Security-Policy"); !strings.HasPrefix(csp,
		"default-src 'none'; script-src 'self';") {
		t.Errorf("Content-Security-Policy: %s", csp)
	}
	var status proxy.Status
	if err := json.Unmarshal([]byte(r.proxy("/keepwatch/status").body), &status); err != nil ||
		len(status.Resources) != 1 || status.Saved["list"] < 2 || status.Server.Failing != nil {
		t.Errorf("the status: %+v, %v", status, err)
	}
	for path, media := range map[string]string{"/keepwatch/page.js": "text/javascript; charset=utf-8",
		"/keepwatch/page.css": "text/css; charset=utf-8"} {
		if got := r.proxy(path); got.code != http.StatusOK || got.header.Get("Content-Type") != media {
			t.Errorf("%s: %d %s", path, got.code, got.header)
		}
	}

	// Its events go on while they are allowed, and no longer.
	stream := r.open(t.Context(), r.proxied, r.url, "/keepwatch/events")
	defer stream.Body.Close()
	events := bufio.NewReader(stream.Body)
	for range 2 {
		var event strings.Builder
		for line := "data: "; strings.HasPrefix(line, "data: "); {
			var err error
			line, err = events.ReadString('\n')
			r.must(err)
			event.WriteString(strings.TrimPrefix(line, "data: "))
		}
		if !mapsRow.MatchString(event.String()) {
			t.Errorf("an event: %s", event.String())
		}
	}
	r.must(r.admin.RbacV1().ClusterRoleBindings().Delete(t.Context(), "page", metav1.DeleteOptions{}))
	if _, err := io.Copy(io.Discard, events); err != nil {
		t.Errorf("the end of the events: %v", err)
	}
}

// A browser shows the page without its script, and brings it up to date with it.
func TestPageInBrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium: the page is NOT tested in a browser (make debian)")
	}
	r := newRig(t)
	r.create(20)
	r.waitCached(maps + "?resourceVersion=0")
	r.allowPage()
	to, err := url.Parse(r.url)
	r.must(err)
	// As kubectl proxy: it adds the credentials.
	proxied := httputil.ReverseProxy{
		Rewrite: func(q *httputil.ProxyRequest) {
			q.SetURL(to)
			q.Out.Header.Set("Authorization", "Bearer "+r.token)
			q.Out.Header.Del("Accept-Encoding")
		},
		Transport: r.proxied.Transport, FlushInterval: -1,
	}
	t.Run("without its script", func(t *testing.T) {
		blocked := proxied // by a policy: a browser without JavaScript prints no document
		blocked.ModifyResponse = func(response *http.Response) error {
			response.Header.Set("Content-Security-Policy", "script-src 'none'")
			return nil
		}
		front := httptest.NewServer(&blocked)
		defer front.Close()
		if dom := browse(t, browser, front.URL+"/keepwatch/"); !mapsRow.Match(dom) {
			t.Errorf("the page in the browser:\n%s", dom)
		}
	})

	// What the page shows at first is taken out, and a script that is slow makes the browser wait for the second event.
	events, live := newCountedBody(2), proxied
	live.ModifyResponse = func(response *http.Response) error {
		switch response.Request.URL.Path {
		case "/keepwatch/events":
			events.ReadCloser, response.Body = response.Body, events
			return nil
		case "/keepwatch/":
		default:
			return nil
		}
		body, err := io.ReadAll(response.Body)
		body = bytes.Replace(body, []byte("</head>"), []byte(`<script src="slow.js" async></script></head>`), 1)
		body = regexp.MustCompile(`(?s)<main id="status">.*</main>`).ReplaceAll(body,
			[]byte(`<main id="status">nothing yet</main>`))
		response.Body = io.NopCloser(bytes.NewReader(body))
		response.Header.Del("Content-Length")
		return err
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/keepwatch/slow.js" {
			select {
			case <-events.enough:
			case <-q.Context().Done():
			}
			return
		}
		live.ServeHTTP(w, q)
	}))
	defer front.Close()
	defer front.CloseClientConnections()
	picture := filepath.Join(t.TempDir(), "page.png")
	if dom := browse(t, browser, front.URL+"/keepwatch/", "--screenshot="+picture); !mapsRow.Match(dom) {
		t.Errorf("the page in the browser:\n%s", dom)
	}
	if *screenshot != "" {
		content, err := os.ReadFile(picture)
		r.must(err)
		r.must(os.WriteFile(*screenshot, content, 0o600))
	}
}

// browse returns the document that a browser has of a page when it has loaded.
func browse(t *testing.T, browser, page string, flags ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Deadline)
	defer cancel()
	run := exec.CommandContext(ctx, browser, slices.Concat(flags, []string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir=" + t.TempDir(),
		"--window-size=1100,700", "--dump-dom", page,
	})...)
	var messages bytes.Buffer
	run.Stderr = &messages
	dom, err := run.Output()
	if err != nil {
		t.Fatalf("the browser: %v\n%s", err, messages.String())
	}
	return dom
}

// countedBody closes enough when it was read a number of times.
type countedBody struct {
	io.ReadCloser
	left   int
	enough chan struct{}
}

func newCountedBody(n int) *countedBody { return &countedBody{left: n, enough: make(chan struct{})} }

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left--; b.left == 0 {
		close(b.enough)
	}
	return n, err
}
