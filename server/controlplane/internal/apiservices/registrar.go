package apiservices

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	definitioninformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	definitionlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/keepwatch/keepwatch/server/internal/worker"
)

// The delays before a name is tried again after an error; they double.
const (
	minDelay = 50 * time.Millisecond
	maxDelay = time.Minute
)

// Storage has the APIServices. Update and Delete fail if the object was changed or replaced after it was read.
type Storage interface {
	List(context.Context) ([]*apiregistrationv1.APIService, error)
	Get(context.Context, string) (*apiregistrationv1.APIService, error)
	Create(context.Context, *apiregistrationv1.APIService) error
	Update(context.Context, *apiregistrationv1.APIService) error
	Delete(context.Context, string, types.UID) error
}

// Registrar maintains the local APIServices.
type Registrar struct {
	storage     Storage
	builtin     map[string]*apiregistrationv1.APIService
	definitions definitionlisters.CustomResourceDefinitionLister
	synced      cache.InformerSynced
	worker      *worker.Worker[string] // of the names of definitions' APIServices
}

// New returns a Registrar of the built-in versions, and of the definitions of an informer, which the caller runs.
func New(
	storage Storage, builtin []schema.GroupVersion, definitions definitioninformers.CustomResourceDefinitionInformer,
) (*Registrar, error) {
	r := &Registrar{
		storage: storage, builtin: map[string]*apiregistrationv1.APIService{}, definitions: definitions.Lister(),
	}
	r.worker = worker.New(worker.Options[string]{Handle: r.sync, Retrying: report, MinDelay: minDelay, MaxDelay: maxDelay})
	for _, gv := range builtin {
		if p, ok := priorities[gv]; ok {
			service := local(gv, p, atStart)
			r.builtin[service.Name] = service
		}
	}
	handler, err := definitions.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { r.definitionChanged(obj.(*apiextensionsv1.CustomResourceDefinition)) },
		UpdateFunc: func(before, obj any) {
			was, is := before.(*apiextensionsv1.CustomResourceDefinition), obj.(*apiextensionsv1.CustomResourceDefinition)
			if was.UID != is.UID || was.Generation != is.Generation {
				r.definitionChanged(was)
				r.definitionChanged(is)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			r.definitionChanged(obj.(*apiextensionsv1.CustomResourceDefinition))
		},
	})
	if err != nil {
		return nil, err
	}
	r.synced = handler.HasSynced
	return r, nil
}

func (r *Registrar) definitionChanged(d *apiextensionsv1.CustomResourceDefinition) {
	for _, version := range d.Spec.Versions {
		r.worker.Add(nameOf(schema.GroupVersion{Group: d.Spec.Group, Version: version.Name}))
	}
}

// Changed reports that an APIService was written or deleted.
func (r *Registrar) Changed(name string) {
	if r.builtin[name] == nil { // these are written at the start only
		r.worker.Add(name)
	}
}

// EnsureBuiltin creates the APIServices of built-in versions that do not exist, restores the specs of those with the
// label, and deletes those of versions that are not served any more. Run handles the ones of definitions.
func (r *Registrar) EnsureBuiltin(ctx context.Context) error {
	services, err := r.storage.List(ctx)
	if err != nil {
		return err
	}
	exist := map[string]bool{}
	for _, have := range services {
		want := r.builtin[have.Name]
		exist[have.Name] = true
		if mode := have.Labels[managed]; mode == atStart || mode == always && want != nil {
			if err := r.settle(ctx, have, want); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.builtin)) {
		if exist[name] {
			continue
		}
		if err := r.create(ctx, r.builtin[name]); err != nil {
			return err
		}
	}
	return nil
}

// Run maintains the APIServices of definitions, and returns when ctx is done.
func (r *Registrar) Run(ctx context.Context) {
	if cache.WaitForCacheSync(ctx.Done(), r.synced) {
		r.enqueueForgotten(ctx)
	}
	r.worker.Run(ctx)
}

func report(ctx context.Context, name string, err error) {
	utilruntime.HandleErrorWithContext(ctx, err, "Registration of an APIService is retried", "name", name)
}

// enqueueForgotten enqueues the APIServices of definitions that were deleted while no server ran.
func (r *Registrar) enqueueForgotten(ctx context.Context) {
	services, err := r.storage.List(ctx)
	if err != nil {
		if ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "APIServices of deleted definitions may remain until the next start")
		}
		return
	}
	for _, service := range services {
		if service.Labels[managed] == always {
			r.Changed(service.Name)
		}
	}
}

// sync creates, restores or deletes the APIService of a definition's version. Without the label it is the user's.
func (r *Registrar) sync(ctx context.Context, name string) error {
	if r.builtin[name] != nil {
		return nil
	}
	want, err := r.wanted(name)
	if err != nil {
		return err
	}
	have, err := r.storage.Get(ctx, name)
	switch {
	case apierrors.IsNotFound(err) && want == nil:
		return nil
	case apierrors.IsNotFound(err):
		return r.create(ctx, want)
	case err != nil:
		return err
	case have.Labels[managed] != always:
		return nil
	default:
		return r.settle(ctx, have, want)
	}
}

// wanted returns the APIService with this name, or nil if no definition has its version.
func (r *Registrar) wanted(name string) (*apiregistrationv1.APIService, error) {
	definitions, err := r.definitions.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	version, group, _ := strings.Cut(name, ".")
	for _, d := range definitions {
		if d.Spec.Group != group {
			continue
		}
		for _, v := range d.Spec.Versions {
			if v.Name == version && v.Served {
				return local(schema.GroupVersion{Group: group, Version: version}, customPriority, always), nil
			}
		}
	}
	return nil, nil
}

func (r *Registrar) create(ctx context.Context, want *apiregistrationv1.APIService) error {
	err := r.storage.Create(ctx, want)
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("create the APIService %s: %w", want.Name, err)
}

// settle restores the spec of an existing APIService, or deletes it if none is wanted. One that was written or deleted
// since it was read is left to the call that follows the write.
func (r *Registrar) settle(ctx context.Context, have, want *apiregistrationv1.APIService) error {
	var err error
	switch {
	case want == nil:
		err = r.storage.Delete(ctx, have.Name, have.UID)
	case equality.Semantic.DeepEqual(have.Spec, want.Spec):
	default:
		restored := have.DeepCopy()
		restored.Spec = want.Spec
		err = r.storage.Update(ctx, restored)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
