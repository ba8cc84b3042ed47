package policies

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
)

// Admission refuses invalid policies and bindings, with 422 Invalid. In kube-apiserver, the storage of these resources
// does.
type Admission struct {
	*admission.Handler
	rights rights
}

var _ admission.ValidationInterface = (*Admission)(nil)

// NewAdmission returns the admission for the users of an authorizer. client reads policies, for their bindings.
func NewAdmission(authorizer authorizer.Authorizer, client kubernetes.Interface) *Admission {
	handler := admission.NewHandler(admission.Create, admission.Update)
	return &Admission{handler, rights{authorizer, client, NewMapper(client.Discovery())}}
}

// Validate returns an error that names each invalid field.
func (a *Admission) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	if attributes.GetResource().Group != admissionregistrationv1.GroupName || attributes.GetSubresource() != "" {
		return nil
	}
	object, old := specOf(attributes.GetObject()), specOf(attributes.GetOldObject())
	if object == nil || old != nil && equality.Semantic.DeepEqual(object, old) { // what is stored was valid
		return nil
	}
	at := field.NewPath("spec")
	var errs field.ErrorList
	switch spec := object.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicySpec:
		errs = validateValidatingPolicy(spec, attributes.GetName(), at)
	case *admissionregistrationv1.MutatingAdmissionPolicySpec:
		errs = validateMutatingPolicy(spec, at)
	case *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec:
		errs = validateBinding(spec.PolicyName, spec.ParamRef, spec.MatchResources, at)
		errs = append(errs, validateActions(spec.ValidationActions, at.Child("validationActions"))...)
		if spec.PolicyName == "" {
			errs = append(errs, field.Required(at.Child("policyName"), ""))
		}
		if len(spec.ValidationActions) == 0 {
			errs = append(errs, field.Required(at.Child("validationActions"), ""))
		}
	case *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec:
		if spec.PolicyName == "" {
			errs = field.ErrorList{field.Required(at.Child("policyName"), "")}
		}
		errs = append(errs, validateBinding(spec.PolicyName, spec.ParamRef, spec.MatchResources, at)...)
		errs = append(errs, validateMutatedOperations(spec.MatchResources, at.Child("matchResources", "resourceRules",
			"operations"))...)
	}
	if len(errs) == 0 {
		errs = a.rights.check(ctx, attributes.GetUserInfo(), object, old, at)
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(attributes.GetKind().GroupKind(), attributes.GetName(), errs)
}

// specOf returns the spec of a policy or a binding, or nil.
func specOf(object runtime.Object) any {
	switch o := object.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return &o.Spec
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		return &o.Spec
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		return &o.Spec
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		return &o.Spec
	}
	return nil
}
