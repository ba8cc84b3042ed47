package proxy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/server/proxy"
)

// event is one of a watch.
type event struct {
	Type   string
	Object struct{ Metadata metav1.ObjectMeta }
}

func (e event) String() string { return e.Type + " " + e.Object.Metadata.Name }

// follower reads the events of a watch through the proxy, and resumes when it ends.
type follower struct {
	*rig
	revision string
	body     io.ReadCloser
	events   *json.Decoder
}

func (f *follower) next(query string) event {
	f.Helper()
	for range 100 {
		if f.body == nil {
			opened := f.open(f.Context(), f.proxied, f.url, maps+"?watch=1&allowWatchBookmarks=true&resourceVersion="+f.revision+
				query)
			f.body, f.events = opened.Body, json.NewDecoder(bufio.NewReader(opened.Body))
		}
		var e event
		err := f.events.Decode(&e)
		switch {
		case err != nil:
			f.body.Close()
			f.body = nil
			continue
		case e.Type == "ERROR":
			f.Fatalf("the watch from %s ends with an error", f.revision)
		}
		f.revision = e.Object.Metadata.ResourceVersion
		if e.Type != "BOOKMARK" {
			return e
		}
	}
	f.Fatal("no event after 100 connections")
	return event{}
}

func (r *rig) write(name, value string) {
	r.Helper()
	_, err := r.admin.CoreV1().ConfigMaps("default").Patch(r.Context(), name, "application/merge-patch+json",
		fmt.Appendf(nil, `{"data":{"v":%q}}`, value), metav1.PatchOptions{})
	r.must(err)
}

// statefulRig has a proxy with an index on disk. restart stops it, calls meanwhile, and starts another one on it.
func statefulRig(t *testing.T, dir string, edit func(*proxy.Config)) (r *rig, restart func(meanwhile func())) {
	var state *proxy.State
	open := func() {
		var err error
		if state, err = proxy.OpenState(dir); err != nil {
			t.Fatal(err)
		}
	}
	open()
	t.Cleanup(func() { // after the proxy's end
		if err := state.Close(); err != nil {
			t.Error(err)
		}
	})
	r = newRig(t, func(_ *rig, c *proxy.Config) {
		if c.State = state; edit != nil {
			edit(c)
		}
	})
	return r, func(meanwhile func()) {
		r.end()
		r.front.server.CloseClientConnections()
		r.must(state.Close())
		meanwhile()
		open()
		r.config.State = state
		r.start()
	}
}

// After a restart of the proxy, a watch resumes where it was: also changes and deletions of the time without a proxy
// arrive, once each, by one list.
func TestWatchesResumeAfterRestart(t *testing.T) {
	t.Parallel()
	r, restart := statefulRig(t, t.TempDir(), nil)
	r.create(6)
	r.waitCached(maps + "?resourceVersion=0")
	var list metav1.PartialObjectMetadataList
	r.must(json.Unmarshal([]byte(r.behind(maps).body), &list))
	f := &follower{rig: r, revision: list.ResourceVersion}
	r.write("map-000", "before")
	if e := f.next(""); e.String() != "MODIFIED map-000" {
		t.Fatalf("the first event: %s", e)
	}
	for round := range 3 {
		restart(func() {
			c := r.admin.CoreV1().ConfigMaps("default")
			r.write("map-000", fmt.Sprint(round))
			r.must(c.Delete(t.Context(), fmt.Sprintf("map-%03d", round+1), metav1.DeleteOptions{}))
			_, err := c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("new-", round)}},
				metav1.CreateOptions{})
			r.must(err)
			_, err = c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "short-lived"}},
				metav1.CreateOptions{})
			r.must(err)
			r.must(c.Delete(t.Context(), "short-lived", metav1.DeleteOptions{}))
		})
		got := map[string]bool{}
		for range 3 {
			got[f.next("").String()] = true
		}
		for _, want := range []string{"MODIFIED map-000", fmt.Sprintf("DELETED map-%03d", round+1), fmt.Sprint("ADDED new-",
			round)} {
			if !got[want] {
				t.Errorf("round %d: got %v, not %s", round, got, want)
			}
		}
		r.write("map-005", fmt.Sprint(round))
		if e := f.next(""); e.String() != "MODIFIED map-005" {
			t.Errorf("round %d: after the difference: %s", round, e)
		}
		if n := r.answered(); n != 1 {
			t.Errorf("round %d: %v requests were answered from the cache, want the watch", round, n)
		}
		if lists := r.metric("keepwatch_proxy_resource_lists_total", `resource="configmaps"`); lists != 1 {
			t.Errorf("round %d: %v lists", round, lists)
		}
	}
}

// A deleted object has its metadata, and its deletion the revision to resume from.
func TestDeletionsWithoutProxy(t *testing.T) {
	t.Parallel()
	r, restart := statefulRig(t, t.TempDir(), nil)
	r.create(2)
	r.waitCached(maps + "?resourceVersion=0")
	var list metav1.PartialObjectMetadataList
	r.must(json.Unmarshal([]byte(r.behind(maps).body), &list))
	gone, err := r.admin.CoreV1().ConfigMaps("default").Get(t.Context(), "map-001", metav1.GetOptions{})
	r.must(err)
	restart(func() {
		r.must(r.admin.CoreV1().ConfigMaps("default").Delete(t.Context(), "map-001", metav1.DeleteOptions{}))
	})
	// A watch with a selector can't be answered: the labels are not known. The server answers it from its history.
	selective := &follower{rig: r, revision: list.ResourceVersion}
	if e := selective.next("&labelSelector=half%3D1"); e.String() != "DELETED map-001" ||
		e.Object.Metadata.Labels["half"] != "1" {
		t.Errorf("with a selector: %v", e)
	}
	f := &follower{rig: r, revision: list.ResourceVersion}
	e := f.next("")
	m := e.Object.Metadata
	if e.Type != "DELETED" || m.UID != gone.UID || m.Name != "map-001" || m.Namespace != "default" ||
		m.ResourceVersion <= gone.ResourceVersion || !m.CreationTimestamp.IsZero() {
		t.Errorf("%s: %+v", e.Type, m)
	}
	if n := r.answered(); n != 1 {
		t.Errorf("%v watches were answered from the cache, want one", n)
	}
}

// While the server is down, watches wait for it, and resume.
func TestRestartWithoutServer(t *testing.T) {
	t.Parallel()
	r, restart := statefulRig(t, t.TempDir(), nil)
	r.create(2)
	r.waitCached(maps + "?resourceVersion=0")
	var list metav1.PartialObjectMetadataList
	r.must(json.Unmarshal([]byte(r.behind(maps).body), &list))
	restart(r.server.Kill)
	if got := r.proxy(maps + "?watch=1&timeoutSeconds=1&resourceVersion=" + list.ResourceVersion); got.code != 503 {
		t.Errorf("without a server: %d %s", got.code, got.body)
	}
	r.must(r.server.Restart(t.Context()))
	r.write("map-000", "after")
	f := &follower{rig: r, revision: list.ResourceVersion}
	if e := f.next(""); e.String() != "MODIFIED map-000" {
		t.Errorf("got %s", e)
	}
}

// The index has nothing of Secrets, and no contents. It is its proxy's alone.
func TestStateOnDisk(t *testing.T) {
	t.Parallel()
	all, err := proxy.ParseSelection([]string{"*", "secrets"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r, restart := statefulRig(t, dir, func(c *proxy.Config) { c.Cached = all })
	_, err = r.admin.CoreV1().Secrets("default").Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hidden-name"},
			StringData: map[string]string{"k": "hidden-value"}}, metav1.CreateOptions{})
	r.must(err)
	_, err = r.admin.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "shown-name", Labels: map[string]string{"l": "label-value"}},
			Data: map[string]string{"k": "map-value"}}, metav1.CreateOptions{})
	r.must(err)
	r.token = r.server.Config().BearerToken
	r.waitCached(maps + "?resourceVersion=0")
	r.waitCached("/api/v1/namespaces/default/secrets?resourceVersion=0")
	restart(func() {
		content, err := os.ReadFile(filepath.Join(dir, "proxy.db"))
		r.must(err)
		for text, want := range map[string]bool{"shown-name": true, "hidden": false, "map-value": false, "label-value": false,
			"secrets": false} {
			if strings.Contains(string(content), text) != want {
				t.Errorf("%q is in the file: %v", text, !want)
			}
		}
		if about, err := os.Stat(filepath.Join(dir, "proxy.db")); err != nil || about.Mode().Perm() != 0o600 {
			t.Errorf("the file: %v, %v", about, err)
		}
	})
	if _, err := proxy.OpenState(dir); err == nil || !strings.Contains(err.Error(), "is in use by another keepwatch") {
		t.Errorf("a second proxy opens the index: %v", err)
	}
}

// A crash loses no event: what the index on disk lacks, the server's history has.
func TestRestartAfterCrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, restart := statefulRig(t, dir, nil)
	r.create(3)
	r.waitCached(maps + "?resourceVersion=0")
	var list metav1.PartialObjectMetadataList
	r.must(json.Unmarshal([]byte(r.behind(maps).body), &list))
	f := &follower{rig: r, revision: list.ResourceVersion}
	time.Sleep(1500 * time.Millisecond) // the index has the state so far
	for i := range 5 {
		r.write("map-000", fmt.Sprint("x", i))
		f.next("")
	}
	// A copy of the file as a crash leaves it, a second or less behind.
	content, err := os.ReadFile(filepath.Join(dir, "proxy.db"))
	r.must(err)
	r.write("map-001", "seen")
	if e := f.next(""); e.String() != "MODIFIED map-001" {
		t.Fatal(e)
	}
	restart(func() {
		r.must(os.WriteFile(filepath.Join(dir, "proxy.db"), content, 0o600))
		r.must(r.admin.CoreV1().ConfigMaps("default").Delete(t.Context(), "map-002", metav1.DeleteOptions{}))
	})
	if e := f.next(""); e.String() != "DELETED map-002" {
		t.Errorf("got %s", e)
	}
}
