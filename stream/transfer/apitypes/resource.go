package apitypes

import (
	"strings"
	"time"

	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Resource is objects of one type of a cluster, and what is stored of them.
type Resource struct {
	Type
	Selection
	// Pinned is true if the version of the type stays, also when the server serves another one instead.
	Pinned bool
}

// Selection selects objects, and what is stored of them.
type Selection struct {
	// Namespace is empty for all namespaces, and for objects without one.
	Namespace string
	// LabelSelector and FieldSelector are in their canonical form: another text is another stream.
	LabelSelector, FieldSelector string
	// Project, if set, returns what is stored in place of an object's JSON. It must not change its argument.
	Project func(object []byte) ([]byte, error)
	// Partial is true if Project leaves out fields that the API server has sent. Databases have it with the type.
	Partial bool
	// MetadataOnly requests and stores the metadata of objects only.
	MetadataOnly bool
	// DropManagedFields drops metadata.managedFields as they arrive.
	DropManagedFields bool
	// OtherEtcd is true if the revisions are never compared with those of other resources.
	OtherEtcd bool
}

// Pattern selects objects of all types of a group, or of all groups; with a namespace, of the types whose objects have
// one. A type joins when the server shows it, and leaves when the server has it no more. Types that are among the named
// resources are left out. Secrets must be named, and Events are stored once, although two groups have them.
type Pattern struct {
	// Group is an API group, example.com for example. It is empty for all groups except those of other patterns.
	Group string
	Selection
}

// String returns *.GROUP, or * for all groups.
func (p Pattern) String() string {
	if p.Group == "" {
		return "*"
	}
	return "*." + p.Group
}

// matches reports whether a pattern stands for a type, widgets.example.com for example.
func (p Pattern) matches(name string) bool {
	if p.Group != "" {
		_, group, _ := strings.Cut(name, ".")
		return group == p.Group
	}
	return name != "secrets" && name != "events.events.k8s.io"
}

// resource returns what a pattern selects of a type. Another version of it joins in its place.
func (p Pattern) resource(t Type) Resource {
	return Resource{Type: t, Selection: p.Selection, Pinned: true}
}

// Scope names the objects for people: pods in kube-system.
func (r Resource) Scope() string {
	if r.Namespace == "" {
		return r.Name()
	}
	return r.Name() + " in " + r.Namespace
}

// Identity returns the identity of the stream of the objects.
func (r Resource) Identity(cluster stream.Cluster) stream.Identity {
	return stream.Identity{
		Cluster: cluster, Resource: r.Name(), Namespace: r.Namespace,
		LabelSelector: r.LabelSelector, FieldSelector: r.FieldSelector,
	}
}

// stored returns the type as databases store it, nil if discovery does not show it.
func (r Resource) stored() *sink.Type {
	if r.Shown == nil {
		return nil
	}
	return &sink.Type{
		Version: r.Type.Resource.Version, Kind: r.Shown.Kind, Singular: r.Shown.SingularName, ShortNames: r.Shown.ShortNames,
		Categories: r.Shown.Categories, Namespaced: r.Shown.Namespaced, Partial: r.Partial,
	}
}

// options returns the options of the source, from those of all.
func (r Resource) options(all kube.Options, watchTimeout func() time.Duration) kube.Options {
	all.Resource, all.Namespace = r.Type.Resource, r.Namespace
	all.LabelSelector, all.FieldSelector = r.LabelSelector, r.FieldSelector
	all.DropManagedFields, all.WatchTimeout = r.DropManagedFields, watchTimeout
	if r.MetadataOnly {
		all.Representation = kube.MetadataOnly
	}
	return all
}
