package readpath

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/scheme"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// The halves of all objects, by UID.
const (
	lowerHalf = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
	upperHalf = "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')"
)

func withUID(uid string) func(metav1.Object) {
	return func(m metav1.Object) { m.SetUID(types.UID(uid)) }
}

func ofShard(selector string) string { return "shardSelector=" + url.QueryEscape(selector) }

// inLowerHalf reports whether a UID is in lowerHalf.
func inLowerHalf(uid types.UID) bool { return sharding.HashField(string(uid)) < "8" }

// Each shard of a list has its objects in each encoding. Lists of Go types name the shard.
func TestShardedLists(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ShardedListAndWatch, true)
	const n = 40
	for name, k := range map[string]kind{"protobuf": pods, "JSON": widgets} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, k, options{})
			var last metav1.Object
			for i := range n {
				last = r.create("default", fmt.Sprintf("o%02d", i), withUID(fmt.Sprint("uid-", i)),
					withNote(string(bytes.Repeat([]byte("x"), 10<<10))))
			}
			r.waitFor(last)
			forms := map[string]http.Header{
				"JSON": accept("application/json"), "gzip": accept("application/json", "Accept-Encoding", "gzip"),
				"Table":    accept(asTable),
				"metadata": accept("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
			}
			if !k.dynamic {
				forms["protobuf"] = accept(runtime.ContentTypeProtobuf)
			}
			for form, header := range forms {
				t.Run(form, func(t *testing.T) {
					r.t = t
					listed := 0
					for _, shard := range []string{lowerHalf, upperHalf} {
						about, items := r.shardList(ofShard(shard), header)
						listed += len(items)
						for _, uid := range items {
							if inLowerHalf(uid) != (shard == lowerHalf) {
								t.Errorf("%s has %s", shard, uid)
							}
						}
						named := !k.dynamic && form != "Table" && form != "metadata"
						if (about.ShardInfo != nil) != named || named && about.ShardInfo.Selector != shard {
							t.Errorf("the list names the shard %v", about.ShardInfo)
						}
					}
					if listed != n {
						t.Errorf("both shards have %d objects", listed)
					}
					if about, items := r.shardList("", header); len(items) != n || about.ShardInfo != nil {
						t.Errorf("a list without a shard has %d objects, of the shard %v", len(items), about.ShardInfo)
					}
				})
			}
			if r.delegated.Load() > 0 {
				t.Errorf("%d requests were delegated", r.delegated.Load())
			}
		})
	}
}

// shardList returns the metadata of a list and the UIDs of its items.
func (r *rig) shardList(query string, header http.Header) (metav1.ListMeta, []types.UID) {
	r.t.Helper()
	answer, body := r.get(r.path("")+"?"+query, header)
	if answer.StatusCode != http.StatusOK {
		r.t.Fatalf("the list is answered %s: %s", answer.Status, body)
	}
	if answer.Header.Get("Content-Encoding") == "gzip" {
		body = must(io.ReadAll(must(gzip.NewReader(bytes.NewReader(body)))(r.t)))(r.t)
	}
	var uids []types.UID
	if answer.Header.Get("Content-Type") == runtime.ContentTypeProtobuf {
		list := &corev1.PodList{}
		must(0, runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), body, list))(r.t)
		for _, pod := range list.Items {
			uids = append(uids, pod.UID)
		}
		return list.ListMeta, uids
	}
	var list struct {
		metav1.ListMeta `json:"metadata"`
		Items           []metav1.PartialObjectMetadata
		Rows            []struct{ Object metav1.PartialObjectMetadata }
	}
	must(0, json.Unmarshal(body, &list))(r.t)
	for _, o := range list.Items {
		uids = append(uids, o.UID)
	}
	for _, row := range list.Rows {
		uids = append(uids, row.Object.UID)
	}
	return list.ListMeta, uids
}

// A watch of a shard receives the events of its objects. An object that is created again may be in
// another shard.
func TestShardedWatches(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ShardedListAndWatch, true)
	r := newRig(t, pods, options{})
	low, high := "", ""
	for i := 0; low == "" || high == ""; i++ {
		if uid := fmt.Sprint("uid-", i); inLowerHalf(types.UID(uid)) {
			low = uid
		} else {
			high = uid
		}
	}
	begin := r.create("default", "begin", withUID(high))
	r.waitFor(begin)
	w := r.watch("timeoutSeconds=600&resourceVersion=" + begin.GetResourceVersion() + "&" + ofShard(lowerHalf))
	r.create("default", "o", withUID(high))
	r.delete("default", "o")
	r.create("default", "o", withUID(low))
	r.update("default", "o", withNote("x"))
	r.update("default", "begin", withNote("x"))
	r.delete("default", "o")
	r.create("default", "o", withUID(high))
	r.create("default", "last", withUID(low))
	for _, want := range []string{"ADDED o", "MODIFIED o", "DELETED o", "ADDED last"} {
		e := w.next()
		if got := brief(e); got != want || e.Type != watch.Error && string(e.Object.UID) != low {
			t.Fatalf("received %s of %s, want %s", got, e.Object.UID, want)
		}
	}
}

// A selector that the API server rejects is delegated to it. While the feature gate is off, it has no
// meaning.
func TestShardSelectors(t *testing.T) {
	r := newRig(t, pods, options{})
	r.waitFor(r.create("default", "o", withUID("uid")))
	plain := accept("application/json")
	all := r.path("") + "?"
	bad := []string{" ", "x", "shardRange(object.metadata.name, '0x0000000000000000', '0x8000000000000000')", lowerHalf +
		" && " + upperHalf}
	for _, selector := range append(bad, lowerHalf, upperHalf) {
		if got := r.reasonFor(http.MethodGet, all+ofShard(selector), plain); got != "" {
			t.Errorf("without the gate, %q: %q", selector, got)
		}
	}
	if _, items := r.shardList(ofShard(lowerHalf), plain); len(items) != 1 {
		t.Errorf("without the gate a list has %d objects", len(items))
	}
	if _, items := r.shardList(ofShard(upperHalf), plain); len(items) != 1 {
		t.Errorf("without the gate a list has %d objects", len(items))
	}
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ShardedListAndWatch, true)
	for _, selector := range bad {
		for _, verb := range []string{"", "&watch=1"} {
			if got := r.reasonFor(http.MethodGet, all+ofShard(selector)+verb, plain); got != reasonInvalid {
				t.Errorf("%q%s: %q, want %q", selector, verb, got, reasonInvalid)
			}
		}
	}
	if got := r.reasonFor(http.MethodGet, all+ofShard(lowerHalf+" || "+upperHalf), plain); got != "" {
		t.Errorf("all shards: %q", got)
	}
}
