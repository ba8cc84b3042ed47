package builtin

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// addPolicyDefaults registers the defaults of admission policies and their bindings: the library that evaluates them
// dereferences these fields.
func addPolicyDefaults(scheme *runtime.Scheme) {
	byType[admissionregistrationv1.ValidatingAdmissionPolicy](scheme,
		func(o *admissionregistrationv1.ValidatingAdmissionPolicy) {
			point(&o.Spec.FailurePolicy, admissionregistrationv1.Fail)
			defaultMatchResources(o.Spec.MatchConstraints)
		})
	byType[admissionregistrationv1.ValidatingAdmissionPolicyBinding](scheme,
		func(o *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
			defaultMatchResources(o.Spec.MatchResources)
		})
	byType[admissionregistrationv1.MutatingAdmissionPolicy](scheme,
		func(o *admissionregistrationv1.MutatingAdmissionPolicy) {
			point(&o.Spec.FailurePolicy, admissionregistrationv1.Fail)
			defaultMatchResources(o.Spec.MatchConstraints)
		})
	byType[admissionregistrationv1.MutatingAdmissionPolicyBinding](scheme,
		func(o *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
			defaultMatchResources(o.Spec.MatchResources)
		})
}

func defaultMatchResources(r *admissionregistrationv1.MatchResources) {
	if r == nil {
		return
	}
	point(&r.MatchPolicy, admissionregistrationv1.Equivalent)
	point(&r.NamespaceSelector, metav1.LabelSelector{})
	point(&r.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{r.ResourceRules, r.ExcludeResourceRules} {
		for i := range rules {
			point(&rules[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}
