package builtin

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateRole(r *rbacv1.Role) field.ErrorList { return validatePolicyRules(r.Rules, true) }

func validateClusterRole(r *rbacv1.ClusterRole) field.ErrorList {
	errs := validatePolicyRules(r.Rules, false)
	if r.AggregationRule == nil {
		return errs
	}
	at := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(r.AggregationRule.ClusterRoleSelectors) == 0 {
		errs = append(errs, field.Required(at, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	for i := range r.AggregationRule.ClusterRoleSelectors {
		selector := &r.AggregationRule.ClusterRoleSelectors[i]
		errs = append(errs, metavalidation.ValidateLabelSelector(selector,
			metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: true}, at.Index(i))...)
	}
	return errs
}

// validatePolicyRules returns an error for each rule without verbs, and for each rule that has neither only paths nor
// both API groups and resources.
func validatePolicyRules(rules []rbacv1.PolicyRule, namespaced bool) (errs field.ErrorList) {
	for i, rule := range rules {
		at := field.NewPath("rules").Index(i)
		if len(rule.Verbs) == 0 {
			errs = append(errs, field.Required(at.Child("verbs"), "verbs must contain at least one value"))
		}
		if len(rule.NonResourceURLs) > 0 {
			paths := at.Child("nonResourceURLs")
			if namespaced {
				errs = append(errs, field.Invalid(paths, rule.NonResourceURLs,
					"namespaced rules cannot apply to non-resource URLs"))
			}
			if len(rule.APIGroups)+len(rule.Resources)+len(rule.ResourceNames) > 0 {
				errs = append(errs, field.Invalid(paths, rule.NonResourceURLs,
					"rules cannot apply to both regular resources and non-resource URLs"))
			}
			continue
		}
		if len(rule.APIGroups) == 0 {
			errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
		}
		if len(rule.Resources) == 0 {
			errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
		}
	}
	return errs
}

func validateRoleBinding(b *rbacv1.RoleBinding) field.ErrorList {
	return append(validateRoleRef(b.RoleRef, "Role", "ClusterRole"), validateSubjects(b.Subjects, true)...)
}

func validateClusterRoleBinding(b *rbacv1.ClusterRoleBinding) field.ErrorList {
	return append(validateRoleRef(b.RoleRef, "ClusterRole"), validateSubjects(b.Subjects, false)...)
}

func validateRoleRef(ref rbacv1.RoleRef, kinds ...string) field.ErrorList {
	at := field.NewPath("roleRef")
	errs := append(oneOf(at.Child("apiGroup"), ref.APIGroup, rbacv1.GroupName), oneOf(at.Child("kind"), ref.Kind,
		kinds...)...)
	if ref.Name == "" {
		return append(errs, field.Required(at.Child("name"), ""))
	}
	return append(errs, invalids(at.Child("name"), ref.Name, content.IsPathSegmentName(ref.Name))...)
}

// validateSubjects checks the users, groups and service accounts of a binding. A service account in a namespaced
// binding may leave out its namespace.
func validateSubjects(subjects []rbacv1.Subject, namespaced bool) (errs field.ErrorList) {
	for i, s := range subjects {
		at := field.NewPath("subjects").Index(i)
		if s.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		switch s.Kind {
		case rbacv1.UserKind, rbacv1.GroupKind:
			errs = append(errs, oneOf(at.Child("apiGroup"), s.APIGroup, rbacv1.GroupName)...)
		case rbacv1.ServiceAccountKind:
			if s.Name != "" {
				errs = append(errs, invalids(at.Child("name"), s.Name, validation.ValidateServiceAccountName(s.Name, false))...)
			}
			errs = append(errs, oneOf(at.Child("apiGroup"), s.APIGroup, "")...)
			if !namespaced && s.Namespace == "" {
				errs = append(errs, field.Required(at.Child("namespace"), ""))
			}
		default:
			errs = append(errs, field.NotSupported(at.Child("kind"), s.Kind, []string{rbacv1.ServiceAccountKind, rbacv1.UserKind,
				rbacv1.GroupKind}))
		}
	}
	return errs
}
