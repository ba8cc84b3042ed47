package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/proxy"
)

// Clients of DropManagedFields receive objects without managedFields, in all encodings, and the others as the server
// has them.
func TestManagedFieldsAreDropped(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *rig, c *proxy.Config) { c.DropManagedFields = []string{"slim/", "thin"} })
	r.create(5)
	all := maps + "?resourceVersion=0"
	for _, accept := range []string{"application/json", runtime.ContentTypeProtobuf,
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", runtime.ContentTypeProtobuf +
			";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"} {
		for agent, dropped := range map[string]bool{"slim/1.2 (linux)": true, "thin": true, "slimmer": false, "": false} {
			r.waitCachedAs(all, accept, "User-Agent", agent)
			if !dropped {
				r.sameBytes(all, accept, "User-Agent", agent)
				continue
			}
			list, behind := r.proxy(all, "Accept", accept, "User-Agent", agent), r.behind(all, "Accept", accept)
			if strings.Contains(list.body, "f:data") || !strings.Contains(list.body, "map-004") ||
				len(list.body) > len(behind.body)*3/4 {
				t.Errorf("%s for %q has %d bytes of %d, or managedFields", accept, agent, len(list.body), len(behind.body))
			}
		}
	}
	for _, agent := range []string{"slim/1", "other"} {
		ends := "managedFields"
		// each representation follows the server by itself
		r.eventually("the cache for "+agent+" has the last deletion", func() bool {
			before := r.answered()
			list := r.proxy(all, "User-Agent", agent)
			return r.answered() > before && !strings.Contains(list.body, "passing")
		})
		opened := r.watch(all+"&watch=1", "User-Agent", agent)
		defer opened.Body.Close()
		events := json.NewDecoder(opened.Body)
		for i := 0; i < 8; i++ { // five that exist, and three that follow
			var e struct {
				Type   string
				Object json.RawMessage
			}
			r.must(events.Decode(&e))
			if has := strings.Contains(string(e.Object), ends); has != (agent == "other") {
				t.Errorf("%s: event %d, %s, has managedFields: %t", agent, i, e.Type, has)
			}
			switch i {
			case 4:
				r.write("map-001", agent)
			case 5:
				_, err := r.admin.CoreV1().ConfigMaps("default").Create(t.Context(),
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "passing"}, Data: map[string]string{"has": "a field"}},
					metav1.CreateOptions{})
				r.must(err)
			case 6:
				r.must(r.admin.CoreV1().ConfigMaps("default").Delete(t.Context(), "passing", metav1.DeleteOptions{}))
			case 7:
				if e.Type != "DELETED" {
					t.Errorf("%s: the last event is %s", agent, e.Type)
				}
			}
		}
	}
	if n := r.metric("keepwatch_proxy_resource_lists_total", `encoding="json;drop=managedFields"`); n == 0 {
		t.Error("the metrics do not tell the representations apart")
	}
}

// What a client read without managedFields and writes back keeps those of the server.
func TestWritesKeepManagedFields(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *rig, c *proxy.Config) { c.DropManagedFields = []string{""} })
	r.bind("writer", "get", "list", "watch", "update")
	r.create(1)
	r.waitCached(maps + "?resourceVersion=0")
	transport, err := rest.HTTPWrappersForConfig(&rest.Config{BearerToken: r.token}, r.proxied.Transport)
	r.must(err)
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: r.url}, &http.Client{Transport: transport})
	r.must(err)
	through, behind := client.CoreV1().ConfigMaps("default"), r.admin.CoreV1().ConfigMaps("default")
	before, err := behind.Get(t.Context(), "map-000", metav1.GetOptions{})
	r.must(err)
	if len(before.ManagedFields) == 0 {
		t.Fatal("the object has no managedFields")
	}
	var read *corev1.ConfigMap
	r.eventually("an object without managedFields", func() bool { // the first reads are forwarded
		read, err = through.Get(t.Context(), "map-000", metav1.GetOptions{ResourceVersion: "0"})
		r.must(err)
		return len(read.ManagedFields) == 0
	})
	read.Labels["written"] = "back"
	_, err = through.Update(t.Context(), read, metav1.UpdateOptions{FieldManager: "writer"})
	r.must(err)
	after, err := behind.Get(t.Context(), "map-000", metav1.GetOptions{})
	r.must(err)
	if len(after.ManagedFields) != len(before.ManagedFields)+1 ||
		fmt.Sprint(after.ManagedFields[0]) != fmt.Sprint(before.ManagedFields[0]) {
		t.Errorf("before %v, after %v", before.ManagedFields, after.ManagedFields)
	}
}

// A watch of objects without managedFields resumes after a restart of the proxy.
func TestDroppedFieldsAfterRestart(t *testing.T) {
	t.Parallel()
	r, restart := statefulRig(t, t.TempDir(), func(c *proxy.Config) { c.DropManagedFields = []string{""} })
	r.create(2)
	r.waitCached(maps + "?resourceVersion=0")
	var list metav1.PartialObjectMetadataList
	r.must(json.Unmarshal([]byte(r.proxy(maps+"?resourceVersion=0").body), &list))
	f := &follower{rig: r, revision: list.ResourceVersion}
	r.write("map-000", "before")
	if e := f.next(""); e.String() != "MODIFIED map-000" {
		t.Fatalf("the first event: %s", e)
	}
	restart(func() {
		r.must(r.admin.CoreV1().ConfigMaps("default").Delete(t.Context(), "map-001", metav1.DeleteOptions{}))
	})
	if e := f.next(""); e.String() != "DELETED map-001" {
		t.Errorf("after the restart: %s", e)
	}
	r.write("map-000", "after")
	if e := f.next(""); e.String() != "MODIFIED map-000" || len(e.Object.Metadata.ManagedFields) > 0 {
		t.Errorf("then: %s with %v", e, e.Object.Metadata.ManagedFields)
	}
}
