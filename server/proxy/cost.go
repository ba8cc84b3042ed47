package proxy

import (
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/endpoints/request"
	apistorage "k8s.io/apiserver/pkg/storage"
	seats "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

// cost returns the cost of the request that memory answers; the seats that it occupies depend on it. It is
// computed before: the gate holds a lock of all requests while it asks.
func cost(q *http.Request) (apistorage.Stats, error) {
	a, ok := q.Context().Value(answerKey{}).(answer)
	if !ok {
		return apistorage.Stats{}, seats.ObjectCountNotFoundErr
	}
	return a.cost, nil
}

// costOf returns at how many objects memory looks to answer a list, or to begin a watch, and their size.
func (a answer) costOf(q *http.Request, info *request.RequestInfo) apistorage.Stats {
	var within *watchcache.Namespaces
	if a.shown != nil {
		within, _, _ = a.shown.Namespaces()
	}
	cache := a.follower.reader.Cache()
	by := selectorOf(q)
	namespace, name := a.follower.reader.Narrowed(info.Namespace, by)
	if info.Verb == "watch" { // whose initial events are found by a scan
		by = everything()
	}
	n := int64(1)
	if name == "" {
		n = cache.Cost(namespace, within, by)
	}
	if limit := pageOf(q, info); limit > 0 && by.Empty() {
		n = min(n, limit)
	}
	all := int64(cache.Snapshot().Len())
	return apistorage.Stats{ObjectCount: n, EstimatedAverageObjectSizeBytes: a.follower.bytes() / max(all, 1)}
}

// pageOf returns how many objects the answer to a list has at most, zero if that is not bounded: a list from revision 0
// has no pages, as in watchcache.ListRequest, and one of a shard passes the objects of the others.
func pageOf(q *http.Request, info *request.RequestInfo) int64 {
	values := q.URL.Query()
	if info.Verb != "list" || values.Get("resourceVersion") == "0" || isSharded(q, info) {
		return 0
	}
	limit, err := strconv.ParseInt(values.Get("limit"), 10, 64)
	if err != nil {
		return 0
	}
	return limit
}

// selectorOf returns what a request selects, as far as it can be understood: everything otherwise.
func selectorOf(q *http.Request) apistorage.SelectionPredicate {
	values, by := q.URL.Query(), everything()
	if label, err := labels.Parse(values.Get("labelSelector")); err == nil {
		by.Label = label
	}
	if field, err := fields.ParseSelector(values.Get("fieldSelector")); err == nil {
		by.Field = field
	}
	by.Continue = values.Get("continue") // a page is one of all objects, also if the selector has the name of one
	return by
}

func everything() apistorage.SelectionPredicate {
	return apistorage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything()}
}
