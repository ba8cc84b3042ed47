package proxy

import (
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/sharding"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/proxy/internal/discovery"
	"github.com/keepwatch/keepwatch/server/proxy/internal/verbatim"
	"github.com/keepwatch/keepwatch/server/readpath"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// hasTimeout reports whether a request has a timeout that the server must judge: it is wrong or short.
func hasTimeout(q *http.Request) bool {
	value := q.URL.Query().Get("timeout")
	timeout, err := time.ParseDuration(value)
	return value != "" && (err != nil || timeout < time.Second)
}

// isSharded reports whether a list or watch has a shard selector. Most servers ignore it.
func isSharded(q *http.Request, info *request.RequestInfo) bool {
	return info.Verb != "get" && q.URL.Query().Get("shardSelector") != ""
}

// checkShard returns the error of a shard selector that cannot be understood: a server that ignores it would answer
// with the objects of all shards.
func checkShard(q *http.Request, info *request.RequestInfo) error {
	if !isSharded(q, info) {
		return nil
	}
	if _, err := sharding.Parse(q.URL.Query().Get("shardSelector")); err != nil {
		return apierrors.NewBadRequest("invalid shard selector: " + err.Error())
	}
	return nil
}

// errShard is why a watch of a shard is not forwarded. A server that ignores the selector would send the objects of all
// shards, and its client could not notice that.
var errShard = func() *apierrors.StatusError {
	err := apierrors.NewServiceUnavailable(
		"a watch of a shard is answered from memory only, which cannot answer this one now")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}()

// isWatchOfShard reports whether a request is a watch that a server without shards would answer with too much. One of a
// resource that may not be cached is between its client and the server.
func (p *Proxy) isWatchOfShard(q *http.Request, info *request.RequestInfo) bool {
	return info != nil && info.IsResourceRequest && info.Verb == "watch" && isSharded(q, info) &&
		p.cached.Allows(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
}

// isConsistentRead reports whether a read must have everything that was written before it.
func isConsistentRead(q *http.Request, info *request.RequestInfo) bool {
	values := q.URL.Query()
	return info.Verb != "watch" && values.Get("resourceVersion") == "" && values.Get("continue") == ""
}

// resumesBefore reports whether a watch resumes from a revision that the cache does not reach back to. The server
// may.
func resumesBefore(q *http.Request, info *request.RequestInfo, cache *watchcache.Cache) bool {
	values := q.URL.Query()
	from, err := keepwatch.ParseRevision(values.Get("resourceVersion"))
	selective := values.Get("labelSelector") != "" || values.Get("fieldSelector") != ""
	return info.Verb == "watch" && err == nil && from > 0 && !cache.CanResume(from, selective)
}

// serializer has the encodings that API servers answer in.
var serializer = scheme.Codecs.WithoutConversion()

// encodingOf returns the encoding of the objects that the response to a request is made of, nil if the server must
// answer the request: it decides about encodings that are not known here, and makes the Tables of built-in kinds and
// those over WebSockets.
func encodingOf(r *discovery.Resource, q *http.Request, info *request.RequestInfo) verbatim.Encoding {
	form, ok := readpath.Negotiate(q, info, serializer, r.Dynamic)
	switch {
	case !ok || acceptsCBOR(q) || form.Protobuf && !r.Dynamic && !r.Protobuf,
		form.Table && (!r.Dynamic || wsstream.IsWebSocketRequest(q)):
		return nil
	case r.Dynamic:
		return verbatim.JSON{}
	}
	return verbatim.EncodingOf(form.Protobuf)
}

// acceptsCBOR reports whether a client accepts CBOR, which servers have only behind a feature gate.
func acceptsCBOR(q *http.Request) bool { return accepts(q, "cbor") }

// wantsMetadata reports whether a client accepts PartialObjectMetadata, or a Table.
func wantsMetadata(q *http.Request) bool { return accepts(q, "as=") }

func accepts(q *http.Request, text string) bool {
	return slices.ContainsFunc(q.Header.Values("Accept"), func(accept string) bool {
		return strings.Contains(accept, text)
	})
}

// isTable reports whether the response to a read is a Table.
func isTable(q *http.Request, info *request.RequestInfo, dynamic bool) bool {
	if !wantsMetadata(q) {
		return false
	}
	form, ok := readpath.Negotiate(q, info, serializer, dynamic)
	return ok && form.Table
}
