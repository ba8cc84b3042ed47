package services

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"
)

// indexName is the name of the index by addresses. No selector of a client can have it.
const indexName = "addresses"

// Index is the index of the Services in a watch cache by their addresses. [Having] uses it.
func Index() cache.Indexers {
	return cache.Indexers{storage.FieldIndex(indexName): func(obj any) (values []string, err error) {
		for _, one := range addressesOf(obj.(*corev1.Service)) {
			values = append(values, one.String())
		}
		return values, nil
	}}
}

// Having narrows a predicate that selects all Services to those that have an address, if the storage has [Index].
func Having(address string, all storage.SelectionPredicate) storage.SelectionPredicate {
	if address != "" {
		all.Field, all.IndexFields = byAddress{fields.Everything(), address}, []string{indexName}
	}
	return all
}

// byAddress makes the storage look into the index. It matches every Service that the index finds: a Service can have
// several addresses, and a field of a selector has one value.
type byAddress struct {
	fields.Selector
	address string
}

func (s byAddress) Empty() bool { return false }

func (s byAddress) RequiresExactMatch(field string) (string, bool) {
	return s.address, field == indexName
}

func (s byAddress) DeepCopySelector() fields.Selector { return s }
