package controlplane

import (
	"context"
	"fmt"
	"iter"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/controlplane/builtin"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/datadir"
	"github.com/keepwatch/keepwatch/server/source/memory"
)

// RestoredObject is an object as a server has answered it, in JSON with apiVersion and kind.
type RestoredObject struct {
	Resource schema.GroupResource
	JSON     []byte
	// TTL is how long the object stays if it is not written again. 0 is for ever.
	TTL time.Duration
}

// Restoration says what [RestoreMemory] has restored.
type Restoration struct {
	Objects int
	// Skipped counts the objects of resources that the server does not have: they are neither built in nor defined by
	// one of the objects, or not in the object's version.
	Skipped map[schema.GroupResource]int
	// Unowned counts the references to owners that were removed.
	Unowned int
	// Namespaces are those that were created, since objects are in them.
	Namespaces []string
}

// RestoreMemory returns a Memory whose server begins with objects, as they were stored by another server: with their
// UIDs, status and resourceVersions, of which revision is the newest. Admission does not see them. References to owners
// for which keepOwner returns false are removed: the garbage collector would delete their dependents. Objects must not
// repeat. A namespace that none of the objects is, although objects are in it, is created.
func RestoreMemory(ctx context.Context, revision keepwatch.Revision, objects iter.Seq2[RestoredObject, error],
	keepOwner func(metav1.OwnerReference) bool) (*Memory, *Restoration, error) {
	kinds, err := builtin.NewRegistry()
	if err != nil {
		return nil, nil, err
	}
	r := &restorer{
		kinds: kinds, keepOwner: keepOwner, revision: revision, namespaces: map[string]bool{},
		defined: map[schema.GroupResource]bool{},
		custom:  map[schema.GroupResource][]memory.Value{}, done: Restoration{Skipped: map[schema.GroupResource]int{}},
	}
	for o, err := range objects {
		if err == nil {
			err = r.add(o)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if err := r.addCustom(); err != nil {
		return nil, nil, err
	}
	if err := r.addNamespaces(); err != nil {
		return nil, nil, err
	}
	db, err := memory.Restore(r.revision, r.values)
	if err != nil {
		return nil, nil, err
	}
	return &Memory{db, datadir.InMemory()}, &r.done, nil
}

// restorer encodes objects as the server stores them.
type restorer struct {
	kinds      *builtin.Registry
	keepOwner  func(metav1.OwnerReference) bool
	revision   keepwatch.Revision // the newest
	values     []memory.Value
	namespaces map[string]bool // that objects are in: true if there is an object for it
	defined    map[schema.GroupResource]bool
	custom     map[schema.GroupResource][]memory.Value
	done       Restoration
}

var (
	namespaceResource  = schema.GroupResource{Resource: "namespaces"}
	definitionResource = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	apiServiceResource = schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}
)

// add encodes an object.
func (r *restorer) add(o RestoredObject) error {
	if o.Resource == apiServiceResource { // the server makes its own
		r.done.Skipped[o.Resource]++
		return nil
	}
	if stored, ok := r.kinds.Stored(o.Resource); ok {
		object, kind, err := stored.Codec.Decode(o.JSON, nil, nil)
		if runtime.IsNotRegisteredError(err) && kind.Group == o.Resource.Group { // a version that is not served here
			r.done.Skipped[o.Resource]++
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", o.Resource, err)
		}
		value, err := r.encode(o.Resource, object, stored.Codec, stored.Prefix)
		value.TTL = (o.TTL + time.Second - 1).Truncate(time.Second) // few leases
		r.values = append(r.values, value)
		return err
	}
	object, _, err := unstructured.UnstructuredJSONScheme.Decode(o.JSON, nil, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", o.Resource, err)
	}
	value, err := r.encode(o.Resource, object, unstructured.UnstructuredJSONScheme, path.Join(o.Resource.Group,
		o.Resource.Resource))
	switch {
	case err != nil:
		return err
	case o.Resource == definitionResource:
		r.values = append(r.values, value)
		r.defined[schema.ParseGroupResource(value.Name)] = true
	default:
		r.custom[o.Resource] = append(r.custom[o.Resource], value)
	}
	return nil
}

// encode returns the value of an object below the prefix of its resource. It has no resourceVersion, as in etcd.
func (r *restorer) encode(resource schema.GroupResource, object runtime.Object, codec runtime.Codec,
	prefix string) (value memory.Value, err error) {
	o, err := meta.Accessor(object)
	if err != nil {
		return value, err
	}
	value.Prefix, value.Name = path.Join(rootPrefix, prefix)+"/", o.GetName()
	if value.Revision, err = keepwatch.ParseRevision(o.GetResourceVersion()); err != nil {
		return value, fmt.Errorf("%s %s: %w", resource, o.GetName(), err)
	}
	r.revision = max(r.revision, value.Revision)
	if namespace := o.GetNamespace(); namespace != "" {
		value.Name = namespace + "/" + o.GetName()
		if !r.namespaces[namespace] { // its own object may follow
			r.namespaces[namespace] = false
		}
	}
	if resource == namespaceResource {
		r.namespaces[o.GetName()] = true
	}
	o.SetResourceVersion("")
	if owners := o.GetOwnerReferences(); len(owners) > 0 {
		kept := slices.DeleteFunc(slices.Clone(owners), func(owner metav1.OwnerReference) bool { return !r.keepOwner(owner) })
		r.done.Unowned += len(owners) - len(kept)
		o.SetOwnerReferences(kept)
	}
	r.done.Objects++
	value.Value, err = runtime.Encode(codec, object)
	return value, err
}

// addCustom adds the custom resources that are defined.
func (r *restorer) addCustom() error {
	for resource, values := range r.custom {
		if r.defined[resource] {
			r.values = append(r.values, values...)
			continue
		}
		r.done.Skipped[resource] += len(values)
		r.done.Objects -= len(values)
	}
	return nil
}

// addNamespaces adds the namespaces that objects are in.
func (r *restorer) addNamespaces() error {
	for name, has := range r.namespaces {
		if !has {
			r.done.Namespaces = append(r.done.Namespaces, name)
		}
	}
	slices.Sort(r.done.Namespaces)
	for _, name := range r.done.Namespaces {
		stored, _ := r.kinds.Stored(namespaceResource)
		r.revision++
		value, err := r.encode(namespaceResource, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: uuid.NewUUID(), CreationTimestamp: metav1.NewTime(time.Now().Truncate(time.Second)),
				Labels: map[string]string{corev1.LabelMetadataName: name}, ResourceVersion: r.revision.String(),
			},
			Spec:   corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
			Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		}, stored.Codec, stored.Prefix)
		if err != nil {
			return err
		}
		r.done.Objects--
		r.values = append(r.values, value)
	}
	return nil
}
