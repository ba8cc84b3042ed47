package builtin

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is one row of the table of built-in resources: what the API shows of it, and the few rules
// in which it differs from the others. Rows are never changed after the table was built.
type kind struct {
	// gv is the version the resource is served and stored in.
	gv schema.GroupVersion
	// alias is another group and version that serves the same stored objects, if there is one.
	alias schema.GroupVersion
	// resource is the plural name in URLs.
	resource string
	// object and list are zero samples of the resource's Go types; the kind is the type's name.
	object, list runtime.Object
	// namespaced is false for cluster-scoped resources.
	namespaced bool
	// short are kubectl's short names.
	short []string
	// category is the word by which kubectl shows the resource together with others.
	category string

	// name checks metadata.name; nil stands for a DNS subdomain (RFC 1123), the API's usual rule.
	name validation.ValidateNameFunc
	// status says how much of an object /status owns.
	status statusRule
	// counts tells which changes metadata.generation counts.
	counts generationRule
	// putCreates lets PUT to a missing name create the object.
	putCreates bool
	// putNeedsVersion refuses a PUT without metadata.resourceVersion.
	putNeedsVersion bool
	// replicas reads and writes what /scale shows; nil when there is no such subresource.
	replicas *replicas
	// prepare sets what the server sets on a new object, after its status was cleared.
	prepare func(runtime.Object)
	// fields are the selectable fields besides metadata.name and metadata.namespace.
	fields func(runtime.Object) fields.Set
	// indexed is the one selectable field the watch cache keeps an index of.
	indexed string
	// returnsDeleted answers DELETE with the deleted object, instead of a Status.
	returnsDeleted bool
	// ttl is the lifetime of an object in seconds; 0 is for ever.
	ttl uint64
	// path is where objects are kept below /registry; empty stands for the plural name.
	path string
}

// statusRule says who writes status.
type statusRule uint8

const (
	// noStatus: the kind has no status subresource.
	noStatus statusRule = iota
	// ownStatus: only /status writes status, and /status writes nothing else but metadata.
	ownStatus
	// strictStatus: as ownStatus, and /status leaves metadata alone.
	strictStatus
	// givenStatus: as ownStatus, but a create may bring its status along (nodes register so).
	givenStatus
)

// generationRule says which changes raise metadata.generation.
type generationRule uint8

const (
	// countNothing: the kind doesn't use metadata.generation.
	countNothing generationRule = iota
	// countSpec: every change of spec.
	countSpec
	// countSpecAndAnnotations: every change of spec or annotations (Deployments).
	countSpecAndAnnotations
	// countContent: every change outside metadata (webhook configurations, PodTemplates).
	countContent
	// countContentAndLabels: as countContent, and every change of the labels (EndpointSlices).
	countContentAndLabels
	// countCreation: always 1 (PriorityClasses).
	countCreation
)

func (k *kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.gv.Group, Resource: k.resource}
}

// served lists the versions the kind can be read and written in.
func (k *kind) served() []schema.GroupVersion {
	if k.alias.Empty() {
		return []schema.GroupVersion{k.gv}
	}
	return []schema.GroupVersion{k.gv, k.alias}
}

// kindName is the API kind, which is the Go type's name for every built-in type.
func (k *kind) kindName() string {
	return reflect.TypeOf(k.object).Elem().Name()
}

// singular is the lower-case kind on a real server, too.
func (k *kind) singular() schema.GroupResource {
	return schema.GroupResource{Group: k.gv.Group, Resource: strings.ToLower(k.kindName())}
}

// prefix is the resource's folder below /registry, which is a real server's: the same etcd
// contents can be read by both.
func (k *kind) prefix() string {
	if k.path != "" {
		return k.path
	}
	return k.resource
}

func (k *kind) newObject() runtime.Object {
	return reflect.New(reflect.TypeOf(k.object).Elem()).Interface().(runtime.Object)
}

func (k *kind) newList() runtime.Object {
	return reflect.New(reflect.TypeOf(k.list).Elem()).Interface().(runtime.Object)
}

// part is the addressable field of that name (Spec, Status) of an API object.
func part(obj runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}
