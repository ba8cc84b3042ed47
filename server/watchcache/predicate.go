package watchcache

import (
	validate "k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// predicate selects objects: by labels and fields, whose selectors are not nil, and by a shard.
type predicate struct {
	apistorage.SelectionPredicate
	shard *shard // nil selects all objects
}

// predicateOf returns a request's predicate. It fails for a shard selector that the API server's parser
// rejects.
func (c *Cache) predicateOf(p apistorage.SelectionPredicate) (predicate, error) {
	if p.Label == nil {
		p.Label = labels.Everything()
	}
	if p.Field == nil {
		p.Field = fields.Everything()
	}
	if p.ShardSelector == nil || p.ShardSelector.Empty() || !c.Sharded() {
		return predicate{p, nil}, nil
	}
	shard, err := shardOf(p.ShardSelector)
	return predicate{p, shard}, err
}

// Empty reports whether a predicate selects all objects. The library's method has the shard only behind the API
// server's feature gate.
func (p *predicate) Empty() bool { return p.shard == nil && p.Label.Empty() && p.Field.Empty() }

// isEmptyIn reports whether a predicate selects no object of a scope, whatever objects there are: it requires a name
// or a namespace that none has, or two of them.
func (p *predicate) isEmptyIn(s scope) bool {
	if p.Field.Empty() {
		return false
	}
	var name, namespace string
	if in, ok := s.single(); ok && s.namespaced {
		namespace = in
	}
	for _, r := range p.Field.Requirements() {
		if r.Operator != selection.Equals && r.Operator != selection.DoubleEquals {
			continue
		}
		switch {
		case r.Field == "metadata.name" && r.Value != "" && (name == "" || name == r.Value) &&
			len(validate.IsPathSegmentName(r.Value)) == 0:
			name = r.Value
		case r.Field == "metadata.name":
			return true
		case r.Field != "metadata.namespace" || !s.namespaced:
		case (namespace == "" || namespace == r.Value) && len(validation.IsDNS1123Label(r.Value)) == 0:
			namespace = r.Value
		default:
			return true
		}
	}
	return false
}

// selectedBy reports whether a predicate selects a decoded object.
func (o *Object) selectedBy(p *predicate) bool { return o.inShard(p) && o.matches(p) }

// inShard reports whether a decoded object is in the shard of a predicate.
func (o *Object) inShard(p *predicate) bool {
	return p.shard == nil || p.shard.contains(o.Key(), o.content.Load().uidHash)
}

// matches reports whether a decoded object has the labels and fields that a predicate requires.
func (o *Object) matches(p *predicate) bool {
	c := o.content.Load()
	return p.Label.Matches(&c.labels) && p.Field.Matches(&c.fields)
}

// watched is selectedBy for a watch. The metrics count the objects of other shards.
func (c *Cache) watched(o *Object, p *predicate) bool {
	if !o.inShard(p) {
		c.meter.otherShard()
		return false
	}
	return o.matches(p)
}
