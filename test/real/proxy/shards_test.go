package proxy

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// quarters are the shard selectors of four clients.
var quarters = []string{
	"shardRange(object.metadata.uid, '0x0000000000000000', '0x4000000000000000')",
	"shardRange(object.metadata.uid, '0x4000000000000000', '0x8000000000000000')",
	"shardRange(object.metadata.uid, '0x8000000000000000', '0xc000000000000000')",
	"shardRange(object.metadata.uid, '0xc000000000000000', '0x10000000000000000')",
}

// Four shards divide the objects of a resource, and its events, although the server behind the proxy ignores shard
// selectors: each receives a quarter of the bytes, within 2 %.
func TestFourShards(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 20_000
	r.multiply(n)
	r.waitCached(maps + "?resourceVersion=0")
	shardOf := map[string]int{} // by name
	var sizes [4]int
	var revision string
	for i, selector := range quarters {
		query := maps + "?resourceVersion=0&shardSelector=" + url.QueryEscape(selector)
		list := r.proxy(query)
		var decoded corev1.ConfigMapList
		r.must(json.Unmarshal([]byte(list.body), &decoded))
		if decoded.ShardInfo == nil || decoded.ShardInfo.Selector == "" {
			t.Fatalf("the list of shard %d does not name its shard: %.200s", i, list.body)
		}
		for _, o := range decoded.Items {
			if other, found := shardOf[o.Name]; found {
				t.Errorf("%s is in shards %d and %d", o.Name, other, i)
			}
			shardOf[o.Name] = i
		}
		sizes[i], revision = len(list.body), decoded.ResourceVersion
		if inProtobuf := r.proxy(query, "Accept", inProtobuf); len(inProtobuf.body) == 0 || inProtobuf.code != 200 {
			t.Errorf("shard %d in protobuf: %d", i, inProtobuf.code)
		}
	}
	total := sizes[0] + sizes[1] + sizes[2] + sizes[3]
	t.Logf("bytes of the shards: %v of %d", sizes, total)
	for i, size := range sizes {
		if share := float64(size) / float64(total); share < 0.25*0.98 || share > 0.25*1.02 {
			t.Errorf("shard %d receives %.4f of the bytes", i, share)
		}
	}
	if len(shardOf) != n+1 {
		t.Errorf("the shards have %d objects of %d", len(shardOf), n+1)
	}
	// Watches: each event goes to one shard.
	var streams [4]<-chan string
	for i, selector := range quarters {
		query := maps + "?watch=1&resourceVersion=" + revision + "&shardSelector=" + url.QueryEscape(selector)
		response := r.open(t.Context(), r.proxied, r.url, query)
		defer response.Body.Close()
		streams[i] = framesOf(response)
	}
	for i := range 40 {
		name := fmt.Sprintf("map-%05d", i)
		r.patch(maps, name, `{"data":{"changed":"yes"}}`)
		if event := r.next(streams[shardOf[name]]); !strings.Contains(event, `"name":"`+name+`"`) {
			t.Errorf("the event of %s: %.300s", name, event)
		}
	}
	for i, stream := range streams {
		select {
		case event := <-stream:
			t.Errorf("shard %d receives more: %.300s", i, event)
		default:
		}
	}
}

// The first watch of a shard is not forwarded to a server that ignores the selector, but waits for the proxy's first
// list. A selector that cannot be understood is refused: the server would answer with all objects.
func TestFirstWatchOfAShard(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 200
	r.multiply(n)
	query := maps +
		"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&shardSelector="
	var response *http.Response
	r.eventually("a watch of a shard is answered", func() bool {
		response = r.open(t.Context(), r.proxied, r.url, query+url.QueryEscape(quarters[0]))
		if response.StatusCode == http.StatusOK {
			return true
		}
		response.Body.Close()
		if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
			t.Errorf("the first watch: %d, %v", response.StatusCode, response.Header)
		}
		return false
	})
	defer response.Body.Close()
	events, frames := 0, framesOf(response)
	for !isBookmark(r.next(frames)) {
		events++
	}
	if r.answered() != 1 || events == 0 || events > n/2 {
		t.Errorf("a quarter of %d objects has %d, answered from a cache: %v", n, events, r.answered())
	}
	if got := r.proxy(maps + "?shardSelector=uid"); got.code != http.StatusBadRequest ||
		!strings.Contains(got.body, "invalid shard selector") {
		t.Errorf("a wrong selector: %d %s", got.code, got.body)
	}
}

// multiply writes n config maps to etcd, as copies of one with names and UIDs of their own: the same ones in each run.
func (r *rig) multiply(n int) {
	r.Helper()
	ctx := context.Background()
	model, err := r.admin.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "map-model"}, Data: map[string]string{"text": strings.Repeat("x", 500)},
	}, metav1.CreateOptions{})
	r.must(err)
	etcd, err := r.server.Endpoint().Client()
	r.must(err)
	defer etcd.Close()
	const prefix = "/registry/configmaps/default/"
	stored, err := etcd.Get(ctx, prefix+"map-model")
	r.must(err)
	value := stored.Kvs[0].Value
	random := rand.New(rand.NewPCG(1, 1))
	var puts []clientv3.Op
	for i := range n {
		name := fmt.Sprintf("map-%05d", i)
		var b [16]byte
		for j := range b {
			b[j] = byte(random.Uint32())
		}
		text := hex.EncodeToString(b[:])
		uid := text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
		copied := bytes.ReplaceAll(bytes.ReplaceAll(value, []byte(model.UID), []byte(uid)), []byte("map-model"), []byte(name))
		puts = append(puts, clientv3.OpPut(prefix+name, string(copied)))
		if len(puts) == 100 || i == n-1 {
			_, err := etcd.Txn(ctx).Then(puts...).Commit()
			r.must(err)
			puts = nil
		}
	}
}
