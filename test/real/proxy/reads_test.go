package proxy

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

const maps = "/api/v1/namespaces/default/configmaps"

// create creates n config maps that a selector can divide.
func (r *rig) create(n int) {
	r.Helper()
	for i := range n {
		_, err := r.admin.CoreV1().ConfigMaps("default").Create(r.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("map-%03d", i),
				Labels: map[string]string{"half": fmt.Sprint(i % 2)}},
			Data: map[string]string{"html": "<b>&\u2028", "text": strings.Repeat("x", i)},
		}, metav1.CreateOptions{})
		r.must(err)
	}
}

// The proxy answers what the server answers, byte for byte, and reads that it can answer from a cache.
func TestReadsAreTheServers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(2 * 300)
	r.waitCached(maps + "?resourceVersion=0")
	var page metav1.PartialObjectMetadataList
	r.must(json.Unmarshal([]byte(r.behind(maps+"?limit=250").body), &page))
	at := page.ResourceVersion
	for _, c := range []struct {
		path   string
		header []string
		cached bool
	}{
		{path: maps, cached: true},
		{path: maps + "?resourceVersion=0", cached: true},
		{path: maps + "?resourceVersion=" + at + "&resourceVersionMatch=NotOlderThan", cached: true},
		{path: maps + "?resourceVersion=" + at + "&resourceVersionMatch=Exact", cached: true},
		{path: maps + "?limit=7", cached: true},
		{path: maps + "?limit=100&continue=" + page.Continue, cached: true},
		{path: maps + "?labelSelector=half%3D1", cached: true},
		{path: maps + "?fieldSelector=metadata.name%3Dmap-007", cached: true},
		{path: maps + "?fieldSelector=data.x%3Dmap-007"},
		{path: maps + "?resourceVersion=none"},
		{path: maps + "?resourceVersion=1&resourceVersionMatch=Exact"},
		{path: maps + "/map-001?resourceVersion=0", cached: true},
		{path: maps + "/missing?resourceVersion=0", cached: true},
		{path: maps + "/map-001", cached: true},
		{path: maps, header: []string{"Accept", "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io"}},
		{path: maps, header: []string{"Accept", "application/yaml"}},
		{path: maps, header: []string{"Accept", "application/cbor,application/json"}},
		{path: maps, header: []string{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"}},
		{path: maps + "?resourceVersion=0", header: []string{"Authorization", ""}},
		{path: maps + "?resourceVersion=0", header: []string{"Authorization", "Bearer wrong"}},
		{path: maps + "?resourceVersion=0", header: []string{"Impersonate-User", "admin"}},
		{path: maps + "?resourceVersion=0", header: []string{"X-Remote-User", "admin"}, cached: true},
		{path: "/api/v1/configmaps?resourceVersion=0"},
		{path: "/api/v1/namespaces/kube-system/configmaps?resourceVersion=0"},
		{path: "/api/v1/namespaces/default/secrets?resourceVersion=0"},
		{path: "/api/v1/namespaces/default/configmaps/map-001/status"},
		{path: maps + "/map-001%2Fstatus"}, {path: maps + "/map-001%2F", cached: true},
		{path: "/version"}, {path: "/api"}, {path: "/nothing"},
	} {
		var got, want answer
		var cached bool
		// the server itself writes between two requests, too: lists then differ in their revision
		await.State(t, fmt.Sprint(c.path, c.header, " is the server's"), func() (bool, string) {
			before := r.answered()
			got = r.proxy(c.path, c.header...)
			cached = r.answered() > before
			want = r.behind(c.path, c.header...)
			return got.code == want.code && normal(t, c.path, got.body) == normal(t, c.path, want.body),
				fmt.Sprintf("%d %.300q\nthe server: %d %.300q", got.code, got.body, want.code, want.body)
		})
		if a, b := got.header["Cache-Control"], want.header["Cache-Control"]; fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("%s: Cache-Control %q, the server's %q", c.path, a, b)
		}
		if cached != c.cached {
			t.Errorf("%s %v: answered from a cache: %v", c.path, c.header, cached)
		}
	}
	var proxied metav1.PartialObjectMetadataList
	r.must(json.Unmarshal([]byte(r.proxy(maps+"?limit=250").body), &proxied))
	next := maps + "?limit=100&continue=" + proxied.Continue // a token of the proxy's, taken to the server
	if got, want := r.behind(next), r.proxy(next); got.code != http.StatusOK || normal(t, next, got.body) != normal(t,
		next, want.body) {
		t.Errorf("the server continues with %d %.300q\nthe proxy: %d %.300q", got.code, got.body, want.code, want.body)
	}
}

var (
	token        = regexp.MustCompile(`"continue":"([^"]*)"`)
	listRevision = regexp.MustCompile(`^(\{"kind":"\w+List","apiVersion":"v1","metadata":\{"resourceVersion":)"\d+"`)
)

// normal is a response without what may differ. A list of any state is at the revision that a cache has heard of last:
// the server's cache may have heard of a write to another resource.
func normal(t *testing.T, path, body string) string {
	if strings.Contains(path, "?resourceVersion=0") {
		body = listRevision.ReplaceAllString(body, `$1"any"`)
	}
	return withoutSlash(t, body)
}

// withoutSlash decodes continue tokens. The server writes keys with and without a slash before them, and reads
// both.
func withoutSlash(t *testing.T, body string) string {
	return token.ReplaceAllStringFunc(body, func(found string) string {
		decoded, err := base64.RawURLEncoding.DecodeString(token.FindStringSubmatch(found)[1])
		if err != nil {
			t.Error(err)
		}
		return strings.Replace(string(decoded), `"start":"/`, `"start":"`, 1)
	})
}

// A read that follows a write sees it, also of a resource that has been quiet.
func TestConsistentReads(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(smallCollection + 1)
	r.waitCached(maps + "?resourceVersion=0")
	quiet := maps + "?limit=1"
	for i := range 20 {
		changed, err := r.admin.CoreV1().ConfigMaps("default").Patch(r.Context(), "map-000", "application/merge-patch+json",
			fmt.Appendf(nil, `{"data":{"i":"%d"}}`, i), metav1.PatchOptions{})
		r.must(err)
		if got := r.proxy(maps + "/map-000").body; !strings.Contains(got, `"resourceVersion":"`+changed.ResourceVersion+`"`) {
			t.Fatalf("write %d is not seen: %s", i, got)
		}
		// Writes to another resource move the server's revision, and nothing of this one.
		_, err = r.admin.CoreV1().Namespaces().Create(r.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "n-"}}, metav1.CreateOptions{})
		r.must(err)
		if i%5 == 0 {
			before := r.answered()
			if got := r.proxy(quiet); got.code != 200 || r.answered() == before {
				t.Errorf("a read of the quiet resource: %d, from the cache: %v", got.code, r.answered() > before)
			}
		}
	}
}

// smallCollection is the proxy's: below it the server answers consistent reads.
const smallCollection = 500

// A watch from a revision before the proxy's first list is the server's to answer.
func TestWatchFromBeforeTheProxy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first, err := r.admin.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "first"}}, metav1.CreateOptions{})
	r.must(err)
	r.create(1)
	r.waitCached(maps + "?resourceVersion=0")
	watch := r.open(t.Context(), r.proxied, r.url, maps+"?watch=1&resourceVersion="+first.ResourceVersion)
	defer watch.Body.Close()
	if event, err := bufio.NewReader(watch.Body).ReadString('\n'); err != nil ||
		!strings.Contains(event, `"name":"map-000"`) {
		t.Errorf("the first event: %s, %v", event, err)
	}
}

// Watches deliver what the server's deliver.
func TestWatchesAreTheServers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(3)
	r.waitCached(maps + "?resourceVersion=0")
	var list metav1.PartialObjectMetadataList
	r.must(json.Unmarshal([]byte(r.behind(maps).body), &list))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	query := maps + "?watch=1&labelSelector=half%3D0&resourceVersion=" + list.ResourceVersion
	ours := r.watch(query)
	defer ours.Body.Close()
	theirs := r.open(ctx, r.direct, r.server.Config().Host, query)
	defer theirs.Body.Close()
	c := r.admin.CoreV1().ConfigMaps("default")
	for _, patch := range []string{`{"data":{"a":"b"}}`, `{"metadata":{"labels":{"half":"1"}}}`,
		`{"metadata":{"labels":{"half":"0"}}}`} {
		_, err := c.Patch(ctx, "map-000", "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		r.must(err)
	}
	r.must(c.Delete(ctx, "map-000", metav1.DeleteOptions{}))
	a, b := bufio.NewReader(ours.Body), bufio.NewReader(theirs.Body)
	for i := range 4 {
		got, err := a.ReadString('\n')
		r.must(err)
		want, err := b.ReadString('\n')
		r.must(err)
		if got != want {
			t.Errorf("event %d: %s\nthe server's: %s", i, got, want)
		}
	}
}

// A revoked binding ends open watches, and refuses reads. A new one allows them again.
func TestRevokedBinding(t *testing.T) {
	r := newRig(t)
	r.create(3)
	r.waitCached(maps + "?resourceVersion=0")
	watch := r.watch(maps + "?watch=1&resourceVersion=0")
	defer watch.Body.Close()
	events := bufio.NewReader(watch.Body)
	for range 3 {
		_, err := events.ReadString('\n')
		r.must(err)
	}
	binding, err := r.admin.RbacV1().RoleBindings("default").Get(t.Context(), "reader", metav1.GetOptions{})
	r.must(err)
	r.must(r.admin.RbacV1().RoleBindings("default").Delete(t.Context(), "reader", metav1.DeleteOptions{}))
	for err == nil { // the end: kube-root-ca.crt may appear before
		_, err = events.ReadString('\n')
	}
	if got := r.proxy(maps + "?resourceVersion=0"); got.code != 403 {
		t.Errorf("a read after the revocation: %d", got.code)
	}
	binding.ResourceVersion, binding.UID = "", ""
	_, err = r.admin.RbacV1().RoleBindings("default").Create(t.Context(), binding, metav1.CreateOptions{})
	r.must(err)
	r.waitCached(maps + "?resourceVersion=0")
}

// While the server is down, lists of any state and open watches go on. When it is back the watches
// continue without a list, by the server's own count.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(3)
	r.waitCached(maps + "?resourceVersion=0")
	var list metav1.PartialObjectMetadataList // at a revision that the cache has: a later one is the server's to watch
	r.must(json.Unmarshal([]byte(r.proxy(maps+"?resourceVersion=0").body), &list))
	watch := r.watch(maps + "?watch=1&resourceVersion=" + list.ResourceVersion)
	defer watch.Body.Close()
	r.server.Kill()
	got := r.proxy(maps + "?resourceVersion=0")
	for begun := time.Now(); got.header.Get("Warning") == "" &&
		time.Since(begun) < await.Deadline; time.Sleep(time.Second) {
		got = r.proxy(maps + "?resourceVersion=0") // also after the review of the token is no longer used
	}
	if warning := got.header.Get("Warning"); got.code != 200 ||
		!strings.Contains(warning, "the API server has not answered for") {
		t.Errorf("a list of any state while the server is down: %d, warning %q, %s", got.code, warning, got.body)
	}
	if got := r.proxy(maps); got.code != 503 {
		t.Errorf("a consistent list while the server is down: %d %s", got.code, got.body)
	}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, r.url+maps+"/map-000", nil)
	r.must(err)
	q.Header.Set("Authorization", "Bearer "+r.token)
	refused, err := r.proxied.Do(q)
	r.must(err)
	refused.Body.Close()
	if refused.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a write while the server is down: %s", refused.Status)
	}
	r.must(r.server.Restart(t.Context()))
	changed, err := r.admin.CoreV1().ConfigMaps("default").Patch(t.Context(), "map-001", "application/merge-patch+json",
		[]byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
	r.must(err)
	events := bufio.NewReader(watch.Body)
	for {
		event, err := events.ReadString('\n')
		r.must(err)
		if strings.Contains(event, `"resourceVersion":"`+changed.ResourceVersion+`"`) {
			break
		}
		if strings.Contains(event, `"type":"ERROR"`) {
			t.Fatal(event)
		}
	}
}

// The etcd behind the server is restored from a backup: soon nothing of what the restore has undone is answered from
// memory any more.
func TestRestoredServer(t *testing.T) {
	t.Parallel()
	etcd := peer.StartEtcd(t)
	r := newRigOn(t, peer.KubernetesOn(t, etcd))
	r.create(5)
	all := maps + "?resourceVersion=0"
	r.waitCached(all)
	file := filepath.Join(t.TempDir(), "snapshot")
	_, err := etcd.Snapshot(t.Context(), file)
	r.must(err)
	r.write("map-000", "undone")
	r.must(r.admin.CoreV1().ConfigMaps("default").Delete(t.Context(), "map-001", metav1.DeleteOptions{}))
	for i := range 100 { // more writes than the server makes at its start
		r.write("map-002", fmt.Sprint("undone-", i))
	}
	r.eventually("the cache has the last write", func() bool { return strings.Contains(r.proxy(all).body, "undone-99") })
	r.server.Kill()
	r.must(etcd.RestoreSnapshot(t.Context(), file))
	r.must(r.server.Restart(t.Context()))
	r.write("map-003", "after")
	r.eventually("the cache has the restored state", func() bool {
		before := r.answered()
		cached, behind := r.proxy(all), r.behind(all)
		return r.answered() > before && cached.code == http.StatusOK && normal(t, all, cached.body) == normal(t, all,
			behind.body)
	})
	if body := r.proxy(all).body; strings.Contains(body, "undone") || !strings.Contains(body, "map-001") ||
		!strings.Contains(body, "after") {
		t.Errorf("the restored state: %.3000s", body)
	}
	if r.metric("keepwatch_storage_relists_total", `reason="stale replica"`) == 0 {
		t.Error("the proxy has noticed the restore by its idle watch, after minutes, and not when the server was back")
	}
}
