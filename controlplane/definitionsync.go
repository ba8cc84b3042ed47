package controlplane

import (
	"sync/atomic"

	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/internalinterfaces"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// definitionInformers are the extension server's informers, which say that they have synced once the
// start is given up. The library's start waits for that, and ends the process if it is interrupted before.
type definitionInformers struct {
	externalversions.SharedInformerFactory
	givenUp atomic.Bool
}

func (f *definitionInformers) Apiextensions() apiextensions.Interface {
	return apiextensions.New(f, "", nil)
}

func (f *definitionInformers) InformerFor(o runtime.Object, make internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return definitionInformer{f.SharedInformerFactory.InformerFor(o, make), &f.givenUp}
}

type definitionInformer struct {
	cache.SharedIndexInformer
	givenUp *atomic.Bool
}

func (i definitionInformer) HasSynced() bool {
	return i.givenUp.Load() || i.SharedIndexInformer.HasSynced()
}
