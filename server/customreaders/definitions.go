package customreaders

import (
	"strings"
	"sync"
	"unsafe"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"
)

// definitionID identifies the content of a CustomResourceDefinition while something refers to it.
// apiextensions-apiserver reads a definition under a lock of its own, and passes nothing of it to the
// storages that it opens except names. The plural among them is the same string as in the definition:
// the address of its bytes is the ID. If a later version of the library copies the string, the ID
// equals no other, so that no storage is attributed to a wrong definition.
type definitionID *byte

func idOf(plural string) definitionID { return unsafe.StringData(plural) }

// definitionIDs gives every definition an ID before apiextensions-apiserver sees it. A changed
// definition keeps its ID unless apiextensions-apiserver opens a new storage for it.
type definitionIDs struct {
	mu     sync.Mutex
	newest map[string]*apiextensionsv1.CustomResourceDefinition // by name
}

// follow sets the informer of the definitions, which has not started, and what else transforms them.
func (d *definitionIDs) follow(definitions informers.CustomResourceDefinitionInformer,
	transforms []cache.TransformFunc) error {
	d.newest = map[string]*apiextensionsv1.CustomResourceDefinition{}
	informer := definitions.Informer()
	err := informer.SetTransform(func(o any) (any, error) {
		o, err := d.identify(o)
		for _, transform := range transforms {
			if err == nil {
				o, err = transform(o)
			}
		}
		return o, err
	})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: d.forget})
	return err
}

// identify is the informer's first transform, which receives each decoded definition in the order of events.
func (d *definitionIDs) identify(o any) (any, error) {
	current, ok := o.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return o, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	names := &current.Status.AcceptedNames
	plural := strings.Clone(names.Plural)
	if previous := d.newest[current.Name]; previous != nil && sameStorage(previous, current) {
		plural = previous.Status.AcceptedNames.Plural
	}
	if idOf(names.Plural) != idOf(plural) { // otherwise the object may be shared, and must not be changed
		names.Plural = plural
	}
	d.newest[current.Name] = current
	return current, nil
}

// sameStorage reports whether apiextensions-apiserver continues to use the storages of a definition
// that changed.
func sameStorage(previous, current *apiextensionsv1.CustomResourceDefinition) bool {
	return previous.UID == current.UID && apiequality.Semantic.DeepEqual(previous.Spec, current.Spec) &&
		apiequality.Semantic.DeepEqual(previous.Status.AcceptedNames, current.Status.AcceptedNames)
}

// forget removes a deleted definition, unless another one of its name was created since.
func (d *definitionIDs) forget(o any) {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	deleted, ok := o.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if newest := d.newest[deleted.Name]; newest != nil && newest.UID == deleted.UID {
		delete(d.newest, deleted.Name)
	}
}
