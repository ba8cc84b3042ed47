package watchcache

import (
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
	for _, r := range p.Field.Requirements() {
		if isEquals(r) {
			return &store.Term{Name: fieldTerm + r.Field, Value: r.Value}
		}
	}
	requirements, _ := p.Label.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := r.ValuesUnsorted(); len(values) == 1 {
				return &store.Term{Name: labelTerm + r.Key(), Value: values[0]}
			}
		}
	}
	return nil
}

// termOf returns the value of a term's attribute, which is empty if the object has none. It cannot judge an object that is
// not decoded: the store's writer calls it.
func (c *Cache) termOf(o keepwatch.Object, name string) (value string, known bool) {
	cached, ok := o.(*Object)
	if !ok {
		return "", false
	}
	content := cached.content.Load()
	if content.encoding == encoded {
		return "", false
	}
	if field, ok := strings.CutPrefix(name, fieldTerm); ok {
		return content.fields.Get(field), true
	}
	return content.labels.Get(strings.TrimPrefix(name, labelTerm)), true
}
