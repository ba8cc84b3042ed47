package builtin

import (
	"strconv"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateDisruptionBudget(b *policyv1.PodDisruptionBudget) (errs field.ErrorList) {
	at := field.NewPath("spec")
	if b.Spec.MinAvailable != nil && b.Spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(at, b.Spec, "minAvailable and maxUnavailable cannot be both set"))
	}
	errs = append(errs, countOrPercent(at.Child("minAvailable"), b.Spec.MinAvailable)...)
	errs = append(errs, countOrPercent(at.Child("maxUnavailable"), b.Spec.MaxUnavailable)...)
	// Invalid label values are accepted: kube-apiserver accepts them in updates of budgets that have them.
	errs = append(errs, metavalidation.ValidateLabelSelector(b.Spec.Selector,
		metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: true}, at.Child("selector"))...)
	if policy := b.Spec.UnhealthyPodEvictionPolicy; policy != nil {
		errs = append(errs, oneOf(at.Child("unhealthyPodEvictionPolicy"), *policy, policyv1.AlwaysAllow,
			policyv1.IfHealthyBudget)...)
	}
	return errs
}

// countOrPercent returns an error if a value is neither nil, nor a count, nor a percentage up to 100.
func countOrPercent(at *field.Path, value *intstr.IntOrString) field.ErrorList {
	if value == nil {
		return nil
	}
	if value.Type == intstr.Int {
		return apivalidation.ValidateNonnegativeField(int64(value.IntVal), at)
	}
	if errs := invalids(at, *value, validation.IsValidPercent(value.StrVal)); len(errs) > 0 {
		return errs
	}
	if n, _ := strconv.Atoi(strings.TrimSuffix(value.StrVal, "%")); n > 100 {
		return field.ErrorList{field.Invalid(at, *value, "must not be greater than 100%")}
	}
	return nil
}
