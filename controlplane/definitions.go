package controlplane

import (
	"strings"
	"sync"
	"unsafe"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"
)

// definitionID identifies what a definition says, as long as something refers to it. The library reads a
// definition under a lock of its own and tells the storages that it opens nothing of it except names. Of
// these, the plural is the very string that the definition holds: its address is the ID. An ID that a
// later library would lose on the way equals no other, so that no storage is taken for a definition's.
type definitionID *byte

func idOf(plural string) definitionID { return unsafe.StringData(plural) }

// definitionIDs gives every definition an ID before the library knows it: the one that it had, unless
// the library would open its storage anew.
type definitionIDs struct {
	mu     sync.Mutex
	newest map[string]*apiextensionsv1.CustomResourceDefinition // by name
}

// follow gives IDs to all definitions of an informer that has not started.
func (d *definitionIDs) follow(definitions informers.CustomResourceDefinitionInformer) error {
	d.newest = map[string]*apiextensionsv1.CustomResourceDefinition{}
	informer := definitions.Informer()
	if err := informer.SetTransform(d.identify); err != nil {
		return err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: d.forget})
	return err
}

// identify is the informer's transform: it sees each definition once it is decoded, in their order.
func (d *definitionIDs) identify(o any) (any, error) {
	is, ok := o.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return o, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	names := &is.Status.AcceptedNames
	plural := strings.Clone(names.Plural)
	if was := d.newest[is.Name]; was != nil && sameStorage(was, is) {
		plural = was.Status.AcceptedNames.Plural
	}
	if idOf(names.Plural) != idOf(plural) { // an object that was identified before is shared
		names.Plural = plural
	}
	d.newest[is.Name] = is
	return is, nil
}

// sameStorage reports whether the library keeps the storages of a definition that changes.
func sameStorage(was, is *apiextensionsv1.CustomResourceDefinition) bool {
	return was.UID == is.UID && apiequality.Semantic.DeepEqual(was.Spec, is.Spec) &&
		apiequality.Semantic.DeepEqual(was.Status.AcceptedNames, is.Status.AcceptedNames)
}

// forget drops a definition that was deleted and has not come again.
func (d *definitionIDs) forget(o any) {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	gone, ok := o.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if newest := d.newest[gone.Name]; newest != nil && newest.UID == gone.UID {
		delete(d.newest, gone.Name)
	}
}
