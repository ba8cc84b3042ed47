package readpath

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

// Reader answers the reads of one resource. It is safe for concurrent use.
type Reader struct {
	resource *Resource
	json     runtime.Serializer
	budget   *Budget
	id       uint64 // unique among the budget's readers
	ownBytes bool   // the watch cache stores objects as this reader serves them
	blocks   *store.Memo[*segmentBlocks]
	listings *listings
	view     *view // nil reads everything
	// A reader of an object that is being encoded waits for the encoding.
	itemLocks, eventLocks *keyLocks
}

// NewReader returns a reader whose encodings count against a budget. It needs no closing: cached
// encodings are dropped with the objects of the watch cache. NewReader returns an error if a field of
// the resource that it needs is missing, or if the serializer has no JSON.
func NewReader(resource Resource, budget *Budget) (*Reader, error) {
	if resource.Cache == nil || resource.Serializer == nil || resource.Predicate == nil || resource.Kind.Kind == "" {
		return nil, errors.New("a reader needs a watch cache, a kind, a serializer and predicates")
	}
	info, ok := runtime.SerializerInfoForMediaType(resource.Serializer.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		return nil, fmt.Errorf("the serializer of %s has no JSON", resource.Resource)
	}
	s := &Reader{
		resource: &resource, json: jsonSerializerOf(info.Serializer), budget: budget, id: budget.readers.Add(1),
		ownBytes: resource.Convert == nil || resource.Cache.Served() == resource.Kind.GroupVersion(),
		listings: &listings{}, itemLocks: newKeyLocks(), eventLocks: newKeyLocks(),
	}
	s.blocks = s.newBlocks()
	return s, nil
}

// At returns a reader whose Tables have the ages at the time that now returns. It shares the encodings of s.
func (s *Reader) At(now func() time.Time) *Reader {
	at, resource := *s, *s.resource
	if resource.Table != nil {
		table := *resource.Table
		table.Now = now
		resource.Table = &table
	}
	at.resource = &resource
	return &at
}

// Of returns a reader of a cache that [watchcache.Cache.At] or Still of the reader's cache has returned. It shares the
// encodings of s, also of the objects that both caches have.
func (s *Reader) Of(cache *watchcache.Cache) *Reader {
	of, resource := *s, *s.resource
	resource.Cache = cache
	of.resource = &resource
	return &of
}

// Answers reports whether the reader answers requests of this form, as far as the state allows.
func (s *Reader) Answers(q *http.Request, info *request.RequestInfo) bool {
	_, why := s.resource.parse(q, info)
	return why == ""
}

// Cache returns the watch cache that the reader answers from.
func (s *Reader) Cache() *watchcache.Cache { return s.resource.Cache }
