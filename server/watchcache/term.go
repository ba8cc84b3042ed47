package watchcache

import (
	"iter"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/selection"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// The names of terms begin with the kind of attribute that they are of.
const (
	fieldTerm = "field:"
	labelTerm = "label:"
)

// term returns an equality that a predicate requires, nil if there is none: of a field, since few objects of a cluster
// have one value of a field that selectors name, otherwise of a label.
func (p *predicate) term() *store.Term {
	for term := range p.terms() {
		return &term
	}
	return nil
}

// terms iterates over the equalities that a predicate requires, those of fields first: one of each name, and
// maxTermIndexes at most, since a client may repeat them 10,000 times.
func (p *predicate) terms() iter.Seq[store.Term] {
	return func(yield func(store.Term) bool) {
		seen := make([]string, 0, maxTermIndexes)
		next := func(name, value string) bool {
			if slices.Contains(seen, name) {
				return true
			}
			seen = append(seen, name)
			return yield(store.Term{Name: name, Value: value}) && len(seen) < maxTermIndexes
		}
		for _, r := range p.Field.Requirements() {
			if isEquals(r) && !next(fieldTerm+r.Field, r.Value) {
				return
			}
		}
		requirements, _ := p.Label.Requirements()
		for _, r := range requirements {
			switch r.Operator() {
			case selection.Equals, selection.DoubleEquals, selection.In:
				values := r.ValuesUnsorted()
				if len(values) == 1 && !next(labelTerm+r.Key(), values[0]) {
					return
				}
			}
		}
	}
}

// termOf returns the value of a term's attribute, which is empty if the object has none. It cannot judge an object that
// is not decoded: the store's writer calls it.
func (c *Cache) termOf(o keepwatch.Object, name string) (value string, known bool) {
	cached, ok := o.(*Object)
	if !ok {
		return "", false
	}
	content := cached.content.Load()
	if content.encoding == encoded {
		return "", false
	}
	attributes, key, _ := content.attributesOf(name)
	return attributes.Get(key), true
}

// attributesOf returns the attributes that a term is of, and the name that it has there.
func (c *content) attributesOf(term string) (of *attributes, name string, isField bool) {
	if field, ok := strings.CutPrefix(term, fieldTerm); ok {
		return &c.fields, field, true
	}
	return &c.labels, strings.TrimPrefix(term, labelTerm), false
}
