package readpath

import (
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch/internal/recent"
	"github.com/keepwatch/keepwatch/store"
)

// Reader answers the reads of one resource. It is safe for concurrent use.
type Reader struct {
	*Resource
	json   runtime.Serializer
	budget *Budget
	blocks [tableJSON]*store.Memo[*kept] // of the forms before it
	frames *recent.Cache[told, []byte]
	locks  [64]sync.Mutex // by object: who asks for what is being encoded waits for it
}

// NewReader makes a reader whose encodings count against a budget until it is
// closed.
func NewReader(resource Resource, budget *Budget) (*Reader, error) {
	if resource.Storage == nil || resource.Serializer == nil || resource.Predicate == nil || resource.Kind.Kind == "" {
		return nil, errors.New("a reader needs a storage, a kind, a serializer and predicates")
	}
	info, ok := runtime.SerializerInfoForMediaType(resource.Serializer.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		return nil, fmt.Errorf("the serializer of %s has no JSON", resource.Resource)
	}
	s := &Reader{Resource: &resource, json: info.Serializer, budget: budget, frames: newFrames()}
	s.newBlocks()
	budget.add(s)
	return s, nil
}

// Close gives the encodings' budget back. Answers may still be under way.
func (s *Reader) Close() { s.budget.remove(s) }
