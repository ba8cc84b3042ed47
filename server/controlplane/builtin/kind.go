package builtin

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// kind is one row of the table of built-in resources: its names in the API, and the rules in which it
// differs from the others. Rows are immutable.
type kind struct {
	// gv is the version in which the resource is served and stored.
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
	// category is the name of a group of resources for kubectl, such as all.
	category string

	// name checks metadata.name; nil stands for a DNS subdomain (RFC 1123), the API's usual rule.
	name validation.ValidateNameFunc
	// status determines which fields /status writes.
	status statusRule
	// counts determines which changes increment metadata.generation.
	counts generationRule
	// putCreates lets PUT to a missing name create the object.
	putCreates bool
	// putNeedsVersion refuses a PUT without metadata.resourceVersion.
	putNeedsVersion bool
	// replicas has the fields of /scale; nil if there is no such subresource.
	replicas *replicas
	// prepare sets fields of a new object that the server owns, after its status was cleared.
	prepare func(runtime.Object)
	// prepareUpdate sets fields of a changed object that the server owns, after its status was set to the old one.
	prepareUpdate func(obj, old runtime.Object)
	// prepareStatus keeps what an update by /status does not change besides spec. keptByStatus are its paths in metadata.
	prepareStatus func(obj, old runtime.Object)
	keptByStatus  []fieldpath.Path
	// fields are the selectable fields besides metadata.name and metadata.namespace.
	fields func(runtime.Object) fields.Set
	// indexed is the selectable field that the watch cache indexes.
	indexed string
	// indexes are further indexes of the watch cache, by their names.
	indexes cache.Indexers
	// returnsDeleted answers DELETE with the deleted object, instead of a Status.
	returnsDeleted bool
	// path is the prefix of keys below /registry; empty stands for the plural name.
	path string
}

// statusRule determines which requests write status.
type statusRule uint8

const (
	// noStatus: the kind has no status subresource.
	noStatus statusRule = iota
	// ownStatus: only /status writes status, and /status writes nothing else except metadata.
	ownStatus
	// strictStatus: as ownStatus, and /status does not write metadata.
	strictStatus
	// givenStatus: as ownStatus, but a create may set status (as nodes do when they register).
	givenStatus
)

// generationRule determines which changes increment metadata.generation.
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

// served returns the versions in which the kind is served.
func (k *kind) served() []schema.GroupVersion {
	if k.alias.Empty() {
		return []schema.GroupVersion{k.gv}
	}
	return []schema.GroupVersion{k.gv, k.alias}
}

// kindName returns the API kind, which is the name of the Go type.
func (k *kind) kindName() string {
	return reflect.TypeOf(k.object).Elem().Name()
}

// singular returns the lower-case kind, as in kube-apiserver.
func (k *kind) singular() schema.GroupResource {
	return schema.GroupResource{Group: k.gv.Group, Resource: strings.ToLower(k.kindName())}
}

// prefix returns the prefix of the resource's keys below /registry. It is that of kube-apiserver: both
// can read the same etcd.
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

// part returns the addressable field (Spec, Status) of an API object.
func part(obj runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}
