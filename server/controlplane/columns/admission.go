package columns

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var admissionViews = map[schema.GroupResource]view{
	admissionregistrationv1.Resource("validatingadmissionpolicies"): show(
		func(p *admissionregistrationv1.ValidatingAdmissionPolicy) []any {
			return []any{p.Name, int64(len(p.Spec.Validations)), paramKind(p.Spec.ParamKind), age(p)}
		},
		nameColumn,
		integer("Validations", "Validations indicates the number of validation rules defined in this configuration"),
		text("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy"),
		ageColumn,
	),
	admissionregistrationv1.Resource("validatingadmissionpolicybindings"): show(
		func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) []any {
			return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), age(b)}
		},
		policyBindingColumns...,
	),
	admissionregistrationv1.Resource("mutatingadmissionpolicies"): show(
		func(p *admissionregistrationv1.MutatingAdmissionPolicy) []any {
			return []any{p.Name, int64(len(p.Spec.Mutations)), paramKind(p.Spec.ParamKind), age(p)}
		},
		nameColumn,
		integer("Mutations", "Mutation indicates the number of mutations rules defined in this configuration"),
		text("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy"),
		ageColumn,
	),
	admissionregistrationv1.Resource("mutatingadmissionpolicybindings"): show(
		func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) []any {
			return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), age(b)}
		},
		policyBindingColumns...,
	),
}

var policyBindingColumns = []metav1.TableColumnDefinition{
	nameColumn,
	text("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to"),
	text("ParamRef", "ParamRef indicates the param resource which sets the configuration param"),
	ageColumn,
}

func paramKind(kind *admissionregistrationv1.ParamKind) string {
	if kind == nil {
		return unset
	}
	return kind.APIVersion + "/" + kind.Kind
}

// paramRef returns NAMESPACE/NAME, or the selector. The namespace of a name without one isn't known.
func paramRef(ref *admissionregistrationv1.ParamRef) string {
	switch {
	case ref == nil, ref.Name == "" && ref.Selector == nil:
		return unset
	case ref.Name == "":
		return ref.Selector.String()
	case ref.Namespace == "":
		return "*/" + ref.Name
	}
	return ref.Namespace + "/" + ref.Name
}
