// Package priorities resolves the PriorityClass of new pods to a priority and a preemption policy, as kube-apiserver's
// admission plugin Priority does, and refuses a second default class.
//
//	priorities.go   the admission plugin
package priorities

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
)

// PluginName is the name of the plugin, as in kube-apiserver's flag --enable-admission-plugins.
const PluginName = "Priority"

// Classes are the PriorityClasses of the server.
type Classes interface {
	Get(ctx context.Context, name string) (*schedulingv1.PriorityClass, error)
	List(ctx context.Context) ([]*schedulingv1.PriorityClass, error)
}

// Register registers the plugin.
func Register(plugins *admission.Plugins, classes Classes) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{admission.NewHandler(admission.Create, admission.Update), classes}, nil
	})
}

type plugin struct {
	*admission.Handler
	classes Classes
}

var (
	_ admission.MutationInterface   = (*plugin)(nil)
	_ admission.ValidationInterface = (*plugin)(nil)
)

// Admit sets the priority, the preemption policy and the class of a new pod. An update without the first two keeps
// them.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetResource().GroupResource() != corev1.Resource("pods") || a.GetSubresource() != "" {
		return nil
	}
	if old, ok := a.GetOldObject().(*corev1.Pod); ok {
		if pod.Spec.Priority == nil {
			pod.Spec.Priority = old.Spec.Priority
		}
		if pod.Spec.PreemptionPolicy == nil {
			pod.Spec.PreemptionPolicy = old.Spec.PreemptionPolicy
		}
		return nil
	}
	class, err := p.classOf(ctx, a, pod.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	return setPriority(a, pod, class)
}

func setPriority(a admission.Attributes, pod *corev1.Pod, class *schedulingv1.PriorityClass) error {
	if given := pod.Spec.Priority; given != nil && *given != class.Value {
		return admission.NewForbidden(a,
			fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *given, class.Value))
	}
	pod.Spec.PriorityClassName, pod.Spec.Priority = class.Name, &class.Value
	if class.PreemptionPolicy == nil {
		return nil
	}
	if given := pod.Spec.PreemptionPolicy; given != nil && *given != *class.PreemptionPolicy {
		return admission.NewForbidden(a,
			fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *given, *class.PreemptionPolicy))
	}
	pod.Spec.PreemptionPolicy = class.PreemptionPolicy
	return nil
}

// classOf returns the class of a name. Without a name it is the default class, or one without a name and with the
// priority 0.
func (p *plugin) classOf(ctx context.Context, a admission.Attributes,
	name string) (*schedulingv1.PriorityClass, error) {
	if name != "" {
		class, err := p.classes.Get(ctx, name)
		if apierrors.IsNotFound(err) {
			return nil, admission.NewForbidden(a, fmt.Errorf("no PriorityClass with name %v was found", name))
		}
		return class, err
	}
	class, err := p.defaultClass(ctx)
	if class == nil && err == nil {
		policy := corev1.PreemptLowerPriority
		class = &schedulingv1.PriorityClass{PreemptionPolicy: &policy}
	}
	return class, err
}

// defaultClass returns the class that is the default; of several, which simultaneous requests can make, the one with
// the lowest priority; nil if there is none.
func (p *plugin) defaultClass(ctx context.Context) (found *schedulingv1.PriorityClass, err error) {
	all, err := p.classes.List(ctx)
	for _, class := range all {
		if class.GlobalDefault && (found == nil || class.Value < found.Value) {
			found = class
		}
	}
	return found, err
}

// Validate returns 403 Forbidden for a default class if another one is the default.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	class, ok := a.GetObject().(*schedulingv1.PriorityClass)
	if !ok || !class.GlobalDefault || a.GetSubresource() != "" {
		return nil
	}
	other, err := p.defaultClass(ctx)
	if err != nil {
		return err
	}
	if other != nil && (a.GetOperation() == admission.Create || other.Name != class.Name) {
		return admission.NewForbidden(a,
			fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist", other.Name))
	}
	return nil
}
