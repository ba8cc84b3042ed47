package readpath

import (
	"errors"
	"fmt"
	"hash/maphash"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch/store"
)

// Reader answers the reads of one resource. It is safe for concurrent use.
type Reader struct {
	*Resource
	json   runtime.Serializer
	budget *Budget
	number uint64 // among the budget's readers
	blocks *store.Memo[*packed]
	asked  askedEncodings
	// encoding is of objects, and framing of events: who asks for what is being encoded waits for it.
	encoding, framing locks
}

// NewReader makes a reader whose encodings count against a budget. It needs not be closed: what
// is cached goes with the cache's objects.
func NewReader(resource Resource, budget *Budget) (*Reader, error) {
	if resource.Cache == nil || resource.Serializer == nil || resource.Predicate == nil || resource.Kind.Kind == "" {
		return nil, errors.New("a reader needs a watch cache, a kind, a serializer and predicates")
	}
	info, ok := runtime.SerializerInfoForMediaType(resource.Serializer.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		return nil, fmt.Errorf("the serializer of %s has no JSON", resource.Resource)
	}
	s := &Reader{Resource: &resource, json: encoderOf(info.Serializer), budget: budget, number: budget.readers.Add(1)}
	s.encoding.seed, s.framing.seed = maphash.MakeSeed(), maphash.MakeSeed()
	s.blocks = s.newBlocks()
	return s, nil
}
