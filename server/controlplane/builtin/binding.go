package builtin

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storageerrors "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"
)

// bindingREST serves pods/binding, by which a scheduler assigns a pod to a node.
type bindingREST struct{ pods *genericregistry.Store }

var (
	_ rest.NamedCreater                   = (*bindingREST)(nil)
	_ rest.SubresourceObjectMetaPreserver = (*bindingREST)(nil)
	_ rest.Creater                        = (*legacyBindingREST)(nil)
)

func (r *bindingREST) New() runtime.Object { return &corev1.Binding{} }

// Destroy does nothing: the storage is the main resource's.
func (r *bindingREST) Destroy() {}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate is true: the UID and the resourceVersion of a binding are
// preconditions.
func (r *bindingREST) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

// Create assigns the pod of a name to a node, which need not exist. A pod that is assigned, being deleted or has
// scheduling gates is a conflict.
func (r *bindingREST) Create(ctx context.Context, name string, object runtime.Object, validate rest.ValidateObjectFunc,
	options *metav1.CreateOptions) (runtime.Object, error) {
	binding := object.(*corev1.Binding)
	if name != binding.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := validateBinding(binding); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	if validate != nil {
		if err := validate(ctx, binding.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if err := r.assign(ctx, binding, dryrun.IsDryRun(options.DryRun)); err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

func validateBinding(binding *corev1.Binding) field.ErrorList {
	var errs field.ErrorList
	if kind := binding.Target.Kind; kind != "" && kind != "Node" {
		errs = append(errs, field.NotSupported(field.NewPath("target", "kind"), kind, []string{"Node", "<empty>"}))
	}
	if binding.Target.Name == "" {
		errs = append(errs, field.Required(field.NewPath("target", "name"), ""))
	}
	return errs
}

// assign writes the node, and the annotations and labels of the binding.
func (r *bindingREST) assign(ctx context.Context, binding *corev1.Binding, dryRun bool) error {
	key, err := r.pods.KeyFunc(ctx, binding.Name)
	if err != nil {
		return err
	}
	var preconditions storage.Preconditions
	if binding.UID != "" {
		preconditions.UID = &binding.UID
	}
	if binding.ResourceVersion != "" {
		preconditions.ResourceVersion = &binding.ResourceVersion
	}
	err = r.pods.Storage.GuaranteedUpdate(ctx, key, &corev1.Pod{}, false, &preconditions,
		storage.SimpleUpdate(func(object runtime.Object) (runtime.Object, error) {
			pod := object.(*corev1.Pod)
			return pod, assignPod(pod, binding)
		}), dryRun, nil)
	if err == nil {
		return nil
	}
	pods := corev1.Resource("pods")
	err = storageerrors.InterpretUpdateError(storageerrors.InterpretGetError(err, pods, binding.Name), pods, binding.Name)
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		err = apierrors.NewConflict(corev1.Resource("pods/binding"), binding.Name, err)
	}
	return err
}

// assignPod changes a pod as a binding says.
func assignPod(pod *corev1.Pod, binding *corev1.Binding) error {
	switch {
	case pod.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return fmt.Errorf("pod %v is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return fmt.Errorf("pod %v has non-empty .spec.schedulingGates", pod.Name)
	}
	pod.Spec.NodeName = binding.Target.Name
	pod.Status.NominatedNodeName = ""
	pod.Annotations = merged(pod.Annotations, binding.Annotations)
	pod.Labels = merged(pod.Labels, binding.Labels)
	setPodCondition(pod, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	return nil
}

// merged returns to with the entries of from, in place unless to is nil.
func merged(to, from map[string]string) map[string]string {
	if len(from) == 0 {
		return to
	}
	if to == nil {
		to = map[string]string{}
	}
	maps.Copy(to, from)
	return to
}

// legacyBindingREST serves bindings, by which clients assigned pods before pods/binding.
type legacyBindingREST struct{ *bindingREST }

func (r *legacyBindingREST) NamespaceScoped() bool   { return true }
func (r *legacyBindingREST) GetSingularName() string { return "binding" }

func (r *legacyBindingREST) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc,
	options *metav1.CreateOptions) (runtime.Object, error) {
	return r.bindingREST.Create(ctx, accessor(object).GetName(), object, validate, options)
}
