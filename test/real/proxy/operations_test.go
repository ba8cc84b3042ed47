package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/proxy"
)

// adminGets sends a request to the proxy as a user who may do everything.
func (r *rig) adminGets(path string, header ...string) answer {
	r.Helper()
	return r.proxy(path, append([]string{"Authorization", "Bearer " + r.server.Config().BearerToken}, header...)...)
}

// metric returns the sum of the samples of a metric at the proxy whose labels contain some text.
func (r *rig) metric(name, labels string) (sum float64) {
	r.Helper()
	for line := range strings.Lines(r.adminGets("/metrics", "Accept", "text/plain").body) {
		var value float64
		if rest, ok := strings.CutPrefix(line, name+"{"); ok && strings.Contains(rest, labels) {
			if _, err := fmt.Sscan(rest[strings.LastIndex(rest, " ")+1:], &value); err != nil {
				r.Fatal(line, err)
			}
			sum += value
		}
	}
	return sum
}

// The health is the proxy's, in kube-apiserver's format, and open. The rest needs a permission of the server's.
func TestOwnEndpoints(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(3)
	r.waitCached(maps + "?resourceVersion=0")
	for _, path := range []string{"/readyz", "/livez"} {
		if got := r.proxy(path, "Authorization", ""); got.code != 200 || got.body != "ok" {
			t.Errorf("%s: %d %q", path, got.code, got.body)
		}
	}
	verbose := r.proxy("/readyz?verbose", "Authorization", "").body
	if !strings.Contains(verbose, "[+]ping ok\n[+]api-server ok\n") ||
		!strings.HasSuffix(verbose, "readyz check passed\n") {
		t.Errorf("verbose: %q", verbose)
	}
	if one := r.proxy("/readyz/api-server", "Authorization", ""); one.code != 200 || one.body != "ok" {
		t.Errorf("one check: %d %q", one.code, one.body)
	}
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap"} {
		if got := r.proxy(path, "Authorization", ""); got.code != 401 || !strings.Contains(got.body, `"kind":"Status"`) {
			t.Errorf("%s without credentials: %d %.100s", path, got.code, got.body)
		}
		got, want := r.proxy(path), r.behind(path)
		if got.code != 403 || got.body != want.body {
			t.Errorf("%s without permission: %d %s\nthe server's: %s", path, got.code, got.body, want.body)
		}
		if got := r.adminGets(path, "Impersonate-User", "ada"); got.code != 401 {
			t.Errorf("%s with impersonation: %d", path, got.code)
		}
		if got := r.adminGets(path); got.code != 200 {
			t.Errorf("%s: %d %s", path, got.code, got.body)
		}
	}
	if got := r.proxy("/healthz"); got.body != r.behind("/healthz").body {
		t.Errorf("the server's health: %q", got.body)
	}
}

// A proxy whose server has never answered is not ready. One whose server is down later is.
func TestReadiness(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *rig, c *proxy.Config) {
		c.Server = rest.CopyConfig(c.Server)
		c.Server.Host = "https://127.0.0.1:1"
	})
	if got := r.proxy("/readyz", "Authorization", ""); got.code != 500 ||
		!strings.Contains(got.body, "[-]api-server failed") {
		t.Errorf("without a server: %d %s", got.code, got.body)
	}
	if got := r.proxy("/livez", "Authorization", ""); got.code != 200 {
		t.Errorf("without a server, /livez: %d", got.code)
	}
	if got := r.proxy("/metrics"); got.code != 401 {
		t.Errorf("without a server, /metrics: %d", got.code)
	}

	r = newRig(t)
	r.create(1)
	r.waitCached(maps + "?resourceVersion=0")
	r.server.Kill()
	r.eventually("the proxy notices", func() bool {
		return r.proxy(maps+"?resourceVersion=0").header.Get("Warning") != ""
	})
	if got := r.proxy("/readyz", "Authorization", ""); got.code != 200 {
		t.Errorf("while the server is down: %d %s", got.code, got.body)
	}
}

// The metrics say what is cached, how it is followed, and what is forwarded and why.
func TestMetrics(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(5)
	r.waitCached(maps + "?resourceVersion=0")
	var objects int
	for range 2 { // kube-root-ca.crt may be there, too
		objects = strings.Count(r.behind(maps).body, `"uid"`)
	}
	of := `resource="configmaps"`
	watch := r.watch(maps + "?watch=1&resourceVersion=0")
	defer watch.Body.Close()
	_, err := bufio.NewReader(watch.Body).ReadString('\n')
	r.must(err)
	for name, want := range map[string]float64{
		`keepwatch_proxy_resource_objects`: float64(objects), `keepwatch_proxy_resource_watchers`: 1,
		`keepwatch_proxy_resource_state`: 1, `keepwatch_proxy_resource_lists_total`: 1, `apiserver_longrunning_requests`: 1,
	} {
		if got := r.metric(name, `resource="configmaps"`); got < want || got > want+1 {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if got := r.metric("keepwatch_proxy_resource_state", `state="live"`); got != 1 {
		t.Errorf("live resources: %v", got)
	}
	if got := r.metric("keepwatch_proxy_resource_bytes", of); got < 5*100 {
		t.Errorf("bytes: %v", got)
	}
	if got := r.metric("keepwatch_proxy_resource_confirmed_age_seconds", of); got <= 0 || got > 300 {
		t.Errorf("age of the last confirmation: %v", got)
	}
	for _, c := range []struct {
		reason, path string
		header       []string
		named        bool // with the resource
	}{
		{reason: "request", path: "/version"},
		{reason: "request", path: maps + "/map-001/status", named: true},
		{reason: "request", path: "/apis/made.up/v1/inventions/x/status"},
		{reason: "selection", path: "/api/v1/namespaces/default/secrets"},
		{reason: "credentials", path: maps, header: []string{"Authorization", ""}, named: true},
		{reason: "credentials", path: maps, header: []string{"Impersonate-User", "x"}, named: true},
		{reason: "identity", path: maps, header: []string{"Authorization", "Bearer wrong"}, named: true},
		{reason: "refused", path: "/api/v1/namespaces/kube-system/configmaps", named: true},
		{reason: "encoding", path: maps, header: []string{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"},
			named: true},
		{reason: "small", path: maps, named: true},
		{reason: "revision", path: maps + "?watch=1&resourceVersion=1&timeoutSeconds=1", named: true},
		{reason: "read-path", path: maps + "?fieldSelector=data.x%3Dy&resourceVersion=0", named: true},
	} {
		labels := `reason="` + c.reason + `",resource=""`
		if c.named {
			labels = `reason="` + c.reason + `",resource="configmaps"`
		}
		before := r.metric("keepwatch_proxy_forwarded_total", labels)
		r.proxy(c.path, c.header...)
		if after := r.metric("keepwatch_proxy_forwarded_total", labels); after != before+1 {
			t.Errorf("%s: %s counted %v after %v", c.path, labels, after, before)
		}
	}
	if made := regexp.MustCompile(`(?m)^.*inventions.*$`).FindString(r.adminGets("/metrics").body); made != "" {
		t.Errorf("a client has made up a label: %s", made)
	}
}

// When the memory has no room, resources are given up: their watches end, resume at the server, and nothing is lost.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *rig, c *proxy.Config) { c.MemoryLimit = 1 })
	r.create(20)
	const path = maps + "?watch=1&timeoutSeconds=60&resourceVersion="
	// Each round, the resource may be cached for a second at most.
	r.eventually("reads are forwarded", func() bool {
		r.proxy(maps + "?resourceVersion=0")
		return r.metric("keepwatch_proxy_forwarded_total", "not-ready") > 3
	})
	for i := range 3 {
		changed, err := r.admin.CoreV1().ConfigMaps("default").Patch(t.Context(), "map-001", "application/merge-patch+json",
			fmt.Appendf(nil, `{"data":{"i":"%d"}}`, i), metav1.PatchOptions{})
		r.must(err)
		if got := r.proxy(maps + "/map-001"); got.code != 200 || !strings.Contains(got.body, `"resourceVersion":"`+
			changed.ResourceVersion+`"`) {
			t.Errorf("a read: %d %s", got.code, got.body)
		}
		watch := r.open(t.Context(), r.proxied, r.url, path+changed.ResourceVersion)
		_, err = r.admin.CoreV1().ConfigMaps("default").Patch(t.Context(), "map-002", "application/merge-patch+json",
			fmt.Appendf(nil, `{"data":{"i":"%d"}}`, i), metav1.PatchOptions{})
		r.must(err)
		if event, err := bufio.NewReader(watch.Body).ReadString('\n'); err != nil ||
			!strings.Contains(event, `"name":"map-002"`) {
			t.Errorf("an event: %s, %v", event, err)
		}
		watch.Body.Close()
	}
	if got := r.proxy("/livez", "Authorization", ""); got.code != 200 {
		t.Errorf("/livez: %d", got.code)
	}
}

// A proxy with the rights of ClusterRole, and no others, caches what it names and forwards the rest.
func TestClusterRoleSuffices(t *testing.T) {
	t.Parallel()
	selection, err := proxy.ParseSelection([]string{"configmaps"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(r *rig, c *proxy.Config) {
		ctx := r.Context()
		role := proxy.ClusterRole("keepwatch-proxy", selection, []schema.GroupResource{{Resource: "configmaps"},
			{Resource: "secrets"}})
		if len(role.Rules) != 9 || strings.Contains(fmt.Sprint(role.Rules), "secrets") {
			r.Errorf("the rules: %v", role.Rules)
		}
		_, err := r.admin.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
		r.must(err)
		_, err = r.admin.CoreV1().ServiceAccounts("default").Create(ctx,
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "keepwatch-proxy"}}, metav1.CreateOptions{})
		r.must(err)
		_, err = r.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "keepwatch-proxy"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "keepwatch-proxy", Namespace: "default"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "keepwatch-proxy"},
		}, metav1.CreateOptions{})
		r.must(err)
		token, err := r.admin.CoreV1().ServiceAccounts("default").CreateToken(ctx, "keepwatch-proxy",
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		r.must(err)
		c.Server = rest.AnonymousClientConfig(c.Server)
		c.Server.BearerToken, c.Cached = token.Status.Token, selection
	})
	r.create(3)
	r.waitCached(maps + "?resourceVersion=0")
	pods := "/api/v1/namespaces/default/pods?resourceVersion=0"
	before := r.answered()
	for range 5 {
		if got := r.proxy(pods); got.code != 200 {
			t.Errorf("pods: %d %s", got.code, got.body)
		}
	}
	if r.answered() != before {
		t.Error("pods are answered from a cache")
	}
	// The proxy follows the roles with these rights: a revoked binding ends an open watch.
	watch := r.watch(maps + "?watch=1&resourceVersion=0")
	defer watch.Body.Close()
	r.must(r.admin.RbacV1().RoleBindings("default").Delete(t.Context(), "reader", metav1.DeleteOptions{}))
	if _, err := io.Copy(io.Discard, watch.Body); err != nil {
		t.Errorf("the watch ends: %v", err)
	}
	if got := r.proxy(maps + "?resourceVersion=0"); got.code != http.StatusForbidden {
		t.Errorf("after the revocation: %d", got.code)
	}
}
