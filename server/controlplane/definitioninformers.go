package controlplane

import (
	"sync/atomic"

	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/internalinterfaces"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// definitionInformers are the extension server's informers. After the start was aborted they report
// that they have synced: k8s.io/apiextensions-apiserver waits for that, and ends the process if the
// wait is interrupted.
type definitionInformers struct {
	externalversions.SharedInformerFactory
	startAborted atomic.Bool
}

func (f *definitionInformers) Apiextensions() apiextensions.Interface {
	return apiextensions.New(f, "", nil)
}

func (f *definitionInformers) InformerFor(o runtime.Object,
	newInformer internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return definitionInformer{f.SharedInformerFactory.InformerFor(o, newInformer), &f.startAborted}
}

type definitionInformer struct {
	cache.SharedIndexInformer
	startAborted *atomic.Bool
}

func (i definitionInformer) HasSynced() bool {
	return i.startAborted.Load() || i.SharedIndexInformer.HasSynced()
}
