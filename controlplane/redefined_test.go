package controlplane

import (
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/readpath"
	"github.com/keepwatch/keepwatch/storage"
)

// library plays what the readers of one custom resource go by.
type library struct {
	*readers
	t     *testing.T
	known cache.Indexer
}

func newLibrary(t *testing.T) *library {
	d := &library{newReaders(1 << 20), t, cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})}
	d.readers.definitions = listers.NewCustomResourceDefinitionLister(d.known)
	return d
}

// define is what the informer does with a definition that is new.
func (d *library) define(generation int64, kind string) {
	d.t.Helper()
	err := d.known.Update(&apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", UID: "u", Generation: generation},
		Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true}}},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			Conditions:    []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}},
			AcceptedNames: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List"},
		},
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// open is what the library does to answer for a definition of widgets.
func (d *library) open() (close func()) {
	d.t.Helper()
	object, list := &unstructured.Unstructured{}, &unstructured.UnstructuredList{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "WidgetList"})
	remove, err := d.addCustom(schema.GroupResource{Group: "example.com", Resource: "widgets"}, object, list, &storage.Storage{}, apistorage.DefaultNamespaceScopedAttr)
	if err != nil {
		d.t.Fatal(err)
	}
	return remove
}

func (d *library) reader() *readpath.Reader {
	return d.lookup(nil, &request.RequestInfo{APIGroup: "example.com", APIVersion: "v1", Resource: "widgets"})
}

// A storage that the library opens for a definition as it was, while it is known already how it
// is, is not read from: the library, which is about to find out, answers.
func TestStorageOfAnOldDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLibrary(t)
		d.define(1, "Widget")
		closeFirst := d.open()
		if d.reader() == nil {
			t.Fatal("a storage of an old definition is left to the library")
		}
		d.define(2, "Widget")
		if d.reader() != nil {
			t.Error("a storage of the definition before is read from")
		}
		d.redefine("widgets.example.com")
		closeSecond := d.open() // of which definition, nobody can tell
		if d.reader() != nil {
			t.Error("a storage that was opened when the definition changed is read from")
		}
		closeFirst()
		closeThird := d.open() // of the newest, since the library knows now
		closeSecond()
		time.Sleep(settling + 1)
		third := d.reader()
		if third == nil {
			t.Error("a storage of the definition is not read from")
		}
		d.redefine("gadgets.example.com")
		if d.reader() != third {
			t.Error("another definition's change matters")
		}
		d.define(2, "Gizmo")
		if d.reader() != nil {
			t.Error("a storage of the kind's old name is read from")
		}
		d.define(2, "Widget")
		closeThird()
		if d.reader() != nil {
			t.Error("a storage that is closed is read from")
		}
	})
}
