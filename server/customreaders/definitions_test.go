package customreaders

import (
	"crypto/rand"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/server/readpath"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// library stands for apiextensions-apiserver, which opens the storage of one custom resource, and for
// the informer of its definitions.
type library struct {
	*Readers
	t     *testing.T
	known cache.Indexer
}

func newLibrary(t *testing.T) *library {
	d := &library{New(readpath.NewBudget(1<<20), nil), t, cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})}
	d.ids.newest = map[string]*apiextensionsv1.CustomResourceDefinition{}
	d.definitions = listers.NewCustomResourceDefinitionLister(d.known)
	return d
}

// define does what the informer does with a new or changed definition.
func (d *library) define(uid types.UID, generation int64, kind string) *apiextensionsv1.CustomResourceDefinition {
	d.t.Helper()
	defined, err := d.ids.identify(&apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", UID: uid, Generation: generation,
			ResourceVersion: rand.Text()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true,
			AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: fmt.Sprint(generation)}},
		}}},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established,
				Status: apiextensionsv1.ConditionTrue}},
			AcceptedNames: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: kind, ListKind: kind + "List"},
		},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	if err := d.known.Update(defined); err != nil {
		d.t.Fatal(err)
	}
	return defined.(*apiextensionsv1.CustomResourceDefinition)
}

// open opens the storage for a definition that the library has read before.
func (d *library) open(read *apiextensionsv1.CustomResourceDefinition) (close func()) {
	d.t.Helper()
	names := read.Status.AcceptedNames
	object, list := &unstructured.Unstructured{}, &unstructured.UnstructuredList{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: names.Kind})
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: names.ListKind})
	remove, err := d.add(schema.GroupResource{Group: "example.com", Resource: names.Plural}, object, list,
		&watchcache.Cache{}, apistorage.DefaultNamespaceScopedAttr)
	if err != nil {
		d.t.Fatal(err)
	}
	return remove
}

func (d *library) reader() *readpath.Reader {
	return d.Lookup(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"})
}

// A reader is used while the definition is the one for which the library opened the storage. The
// library reads the definition before it opens the storage; the definition may change in between.
func TestStorageOfAnOldDefinition(t *testing.T) {
	d := newLibrary(t)
	expect := func(definition string, used bool) *readpath.Reader {
		t.Helper()
		reader := d.reader()
		if (reader != nil) != used {
			t.Errorf("the storage for %s is used: %v", definition, !used)
		}
		return reader
	}
	one := d.define("u", 1, "Widget")
	closeOne := d.open(one)
	expect("the definition", true)
	d.define("u", 1, "Widget") // another status
	first := expect("the definition with another status", true)

	two := d.define("u", 2, "Widget")
	expect("an older definition", false)
	closeLate := d.open(one) // the library has read the first definition only
	expect("an older definition, opened late", false)
	closeOne()
	closeTwo := d.open(two)
	closeLate()
	if second := expect("the second definition", true); second == first {
		t.Error("the reader is that of the first definition")
	}

	d.define("u", 2, "Gizmo")
	expect("another kind", false)
	d.define("v", 2, "Widget")
	expect("a deleted definition", false)
	other := d.define("v", 2, "Widget")
	closeOther := d.open(other)
	closeTwo()
	expect("the next definition", true)
	closeOther()
	expect("a closed storage", false)

	d.ids.forget(two)
	if d.ids.newest["widgets.example.com"] != other {
		t.Error("forget removes the next definition")
	}
	d.ids.forget(cache.DeletedFinalStateUnknown{Obj: other})
	if len(d.ids.newest) > 0 {
		t.Error("a deleted definition still has an ID")
	}
}
