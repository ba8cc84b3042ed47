package builtin

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storageerrors "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// namespaceREST deletes a namespace in two steps: the first DELETE marks it as terminating; it is
// deleted when spec.finalizers is empty, which the controller that deletes its contents sets.
type namespaceREST struct {
	listed
	store *genericregistry.Store
}

// listed has all methods of the generic store except deletion. There is no rest.CollectionDeleter, as
// in kube-apiserver: namespaces are deleted one by one.
type listed interface {
	rest.Storage
	rest.Scoper
	rest.Getter
	rest.Lister
	rest.CreaterUpdater
	rest.Watcher
	rest.ShortNamesProvider
	rest.SingularNameProvider
	rest.StorageVersionProvider
	rest.StorageWithReadiness
	rest.ResetFieldsStrategy
}

// deleteFinalizedNamespace reports whether an update deletes a terminating namespace: its metadata has no
// finalizers, and spec.finalizers is empty.
func deleteFinalizedNamespace(ctx context.Context, key string, obj, existing runtime.Object) bool {
	return len(obj.(*corev1.Namespace).Spec.Finalizers) == 0 &&
		genericregistry.ShouldDeleteDuringUpdate(ctx, key, obj, existing)
}

// Delete marks the namespace as terminating, or deletes it if it has no finalizers.
func (r *namespaceREST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc,
	options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	obj, err := r.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, false, err
	}
	ns := obj.(*corev1.Namespace)
	if options == nil {
		options = metav1.NewDeleteOptions(0)
	}
	if err := checkPreconditions(options, ns); err != nil {
		return nil, false, err
	}
	switch {
	case ns.DeletionTimestamp.IsZero():
		marked, err := r.terminate(ctx, name, validate, options)
		return marked, false, err
	case len(ns.Spec.Finalizers) > 0:
		return ns, false, nil
	default:
		return r.store.Delete(ctx, name, validate, options)
	}
}

// checkPreconditions returns a conflict unless the object that was read meets the preconditions.
func checkPreconditions(options *metav1.DeleteOptions, ns *corev1.Namespace) error {
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	p := options.Preconditions
	if p.UID == nil {
		p.UID = &ns.UID
	}
	var problem error
	if *p.UID != ns.UID {
		//lint:ignore ST1005 the message of kube-apiserver
		problem = fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, ns.UID)
	} else if p.ResourceVersion != nil && *p.ResourceVersion != ns.ResourceVersion {
		//lint:ignore ST1005 the message of kube-apiserver
		problem = fmt.Errorf("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v",
			*p.ResourceVersion, ns.ResourceVersion)
	} else {
		return nil
	}
	return errors.NewConflict(corev1.Resource("namespaces"), ns.Name, problem)
}

// terminate sets the deletion time, the phase Terminating, and the finalizers of the propagation.
func (r *namespaceREST) terminate(ctx context.Context, name string, validate rest.ValidateObjectFunc,
	options *metav1.DeleteOptions) (runtime.Object, error) {
	key, err := r.store.KeyFunc(ctx, name)
	if err != nil {
		return nil, err
	}
	out := r.store.New()
	preconditions := storage.Preconditions{UID: options.Preconditions.UID,
		ResourceVersion: options.Preconditions.ResourceVersion}
	mark := storage.SimpleUpdate(func(existing runtime.Object) (runtime.Object, error) {
		ns := existing.(*corev1.Namespace)
		if err := validate(ctx, ns); err != nil {
			return nil, err
		}
		if ns.DeletionTimestamp.IsZero() {
			now := metav1.Now()
			ns.DeletionTimestamp = &now
		}
		ns.Status.Phase = corev1.NamespaceTerminating
		if r.store.EnableGarbageCollection {
			ns.Finalizers = withPropagation(ns.Finalizers, options)
		}
		return ns, nil
	})
	err = r.store.Storage.GuaranteedUpdate(ctx, key, out, false, &preconditions, mark, dryrun.IsDryRun(options.DryRun),
		nil)
	if err != nil {
		err = storageerrors.InterpretGetError(err, corev1.Resource("namespaces"), name)
		return nil, storageerrors.InterpretUpdateError(err, corev1.Resource("namespaces"), name)
	}
	return out, nil
}

// withPropagation returns finalizers with the one by which the garbage collector knows the propagation that is wanted.
// Without a wish they stay.
func withPropagation(finalizers []string, options *metav1.DeleteOptions) []string {
	var wanted string
	//lint:ignore SA1019 clients of earlier versions set OrphanDependents
	switch policy, orphan := options.PropagationPolicy, options.OrphanDependents; {
	case orphan != nil && *orphan, orphan == nil && policy != nil && *policy == metav1.DeletePropagationOrphan:
		wanted = metav1.FinalizerOrphanDependents
	case orphan != nil, policy != nil && *policy == metav1.DeletePropagationForeground:
		wanted = metav1.FinalizerDeleteDependents
	case policy == nil:
		return finalizers
	}
	finalizers = slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	if wanted != "" {
		finalizers = append(finalizers, wanted)
	}
	return finalizers
}

// finalizeStrategy has the rules of /finalize, which writes spec.finalizers.
type finalizeStrategy struct{ strategy }

func (s finalizeStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	obj.(*corev1.Namespace).Status = old.(*corev1.Namespace).Status
}

func (s finalizeStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.reset("status")
}
