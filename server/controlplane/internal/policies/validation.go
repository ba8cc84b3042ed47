package policies

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The values that fields may have, in the order of messages.
var (
	failurePolicies = []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail,
		admissionregistrationv1.Ignore}
	matchPolicies = []admissionregistrationv1.MatchPolicyType{admissionregistrationv1.Equivalent,
		admissionregistrationv1.Exact}
	reinvocationPolicies = []admissionregistrationv1.ReinvocationPolicyType{
		admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy}
	actions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit,
		admissionregistrationv1.Deny, admissionregistrationv1.Warn}
	scopes = []admissionregistrationv1.ScopeType{admissionregistrationv1.AllScopes,
		admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope}
	reasons = []metav1.StatusReason{metav1.StatusReasonForbidden, metav1.StatusReasonInvalid,
		metav1.StatusReasonRequestEntityTooLarge}
	patchTypes = []admissionregistrationv1.PatchType{admissionregistrationv1.PatchTypeApplyConfiguration,
		admissionregistrationv1.PatchTypeJSONPatch}
	notFoundActions = []admissionregistrationv1.ParameterNotFoundActionType{admissionregistrationv1.DenyAction,
		admissionregistrationv1.AllowAction}
	operations = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll,
		admissionregistrationv1.Connect, admissionregistrationv1.Create,
		admissionregistrationv1.Delete, admissionregistrationv1.Update}
	// mutatedOperations are those whose object a policy can change.
	mutatedOperations = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll,
		admissionregistrationv1.Connect, admissionregistrationv1.Create,
		admissionregistrationv1.Update}
)

func validateValidatingPolicy(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec, name string,
	at *field.Path) field.ErrorList {
	errs := validateFailurePolicy(spec.FailurePolicy, at.Child("failurePolicy"))
	errs = append(errs, validateParamKind(spec.ParamKind, at.Child("paramKind"))...)
	errs = append(errs, validateConstraints(spec.MatchConstraints, at.Child("matchConstraints"))...)
	errs = append(errs, matchConditions(spec.MatchConditions, spec.ParamKind != nil, at.Child("matchConditions"))...)
	compiler, err := newCompiler(spec.ParamKind != nil, len(spec.Variables) > 0)
	if err != nil {
		return append(errs, field.InternalError(at, err))
	}
	errs = append(errs, compiler.variables(spec.Variables, at.Child("variables"))...)
	if len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 {
		const detail = "validations or auditAnnotations must contain at least one item"
		return append(errs, field.Required(at.Child("validations"), detail), field.Required(at.Child("auditAnnotations"),
			detail))
	}
	errs = append(errs, compiler.validations(spec.Validations, at.Child("validations"))...)
	return append(errs, compiler.annotations(spec.AuditAnnotations, name, at.Child("auditAnnotations"))...)
}

func validateMutatingPolicy(spec *admissionregistrationv1.MutatingAdmissionPolicySpec, at *field.Path) field.ErrorList {
	errs := validateFailurePolicy(spec.FailurePolicy, at.Child("failurePolicy"))
	errs = append(errs, validateParamKind(spec.ParamKind, at.Child("paramKind"))...)
	errs = append(errs, validateConstraints(spec.MatchConstraints, at.Child("matchConstraints"))...)
	errs = append(errs, validateMutatedOperations(spec.MatchConstraints, at.Child("matchConstraints", "resourceRules",
		"operations"))...)
	errs = append(errs, matchConditions(spec.MatchConditions, spec.ParamKind != nil, at.Child("matchConditions"))...)
	compiler, err := newCompiler(spec.ParamKind != nil, true)
	if err != nil {
		return append(errs, field.InternalError(at, err))
	}
	errs = append(errs, compiler.variables(spec.Variables, at.Child("variables"))...)
	if len(spec.Mutations) == 0 {
		errs = append(errs, field.Required(at.Child("mutations"), "mutations must contain at least one item"))
	}
	errs = append(errs, compiler.mutations(spec.Mutations, at.Child("mutations"))...)
	return append(errs, oneOf(spec.ReinvocationPolicy, reinvocationPolicies, at.Child("reinvocationPolicy"))...)
}

// validateBinding checks what both kinds of bindings have, except that the name of the policy is required: the errors
// of the two kinds have it in different places.
func validateBinding(policy string, ref *admissionregistrationv1.ParamRef,
	resources *admissionregistrationv1.MatchResources, at *field.Path) (errs field.ErrorList) {
	if policy != "" {
		for _, message := range apivalidation.NameIsDNSSubdomain(policy, false) {
			errs = append(errs, field.Invalid(at.Child("policyName"), policy, message))
		}
	}
	errs = append(errs, validateParamRef(ref, at.Child("paramRef"))...)
	return append(errs, validateMatchResources(resources, at.Child("matchResources"))...)
}

// oneOf returns an error for a missing or unknown value.
func oneOf[T ~string](value T, known []T, at *field.Path) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(at, "")}
	case !slices.Contains(known, value):
		return field.ErrorList{field.NotSupported(at, value, known)}
	}
	return nil
}

func validateFailurePolicy(policy *admissionregistrationv1.FailurePolicyType, at *field.Path) field.ErrorList {
	if !slices.Contains(failurePolicies, *policy) { // it has a default
		return field.ErrorList{field.NotSupported(at, *policy, failurePolicies)}
	}
	return nil
}

func validateParamKind(kind *admissionregistrationv1.ParamKind, at *field.Path) (errs field.ErrorList) {
	if kind == nil {
		return nil
	}
	if kind.APIVersion == "" {
		errs = append(errs, field.Required(at.Child("apiVersion"), ""))
	} else if group, version, err := splitVersion(kind.APIVersion); err != nil {
		errs = append(errs, field.Invalid(at.Child("apiVersion"), kind.APIVersion, err.Error()))
	} else {
		if group != "" {
			errs = append(errs, invalidIf(validation.IsDNS1123Subdomain(group), group, "", at.Child("apiVersion"))...)
		}
		if version == "" {
			errs = append(errs, field.Invalid(at.Child("apiVersion"), kind.APIVersion, "version must be specified"))
		} else {
			errs = append(errs, invalidIf(validation.IsDNS1035Label(version), version, "", at.Child("apiVersion"))...)
		}
	}
	if kind.Kind == "" {
		return append(errs, field.Required(at.Child("kind"), ""))
	}
	const prefix = "may have mixed case, but should otherwise match: "
	return append(errs, invalidIf(validation.IsDNS1035Label(strings.ToLower(kind.Kind)), kind.Kind, prefix,
		at.Child("kind"))...)
}

// invalidIf returns one error if there are messages.
func invalidIf(messages []string, value, prefix string, at *field.Path) field.ErrorList {
	if len(messages) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, value, prefix+strings.Join(messages, ","))}
}

// splitVersion returns the group and the version of an apiVersion, each of which may be empty.
func splitVersion(apiVersion string) (group, version string, err error) {
	switch strings.Count(apiVersion, "/") {
	case 0:
		return "", apiVersion, nil
	case 1:
		group, version, _ = strings.Cut(apiVersion, "/")
		return group, version, nil
	}
	return "", "", errors.New("unexpected GroupVersion string: " + apiVersion)
}

func validateConstraints(resources *admissionregistrationv1.MatchResources, at *field.Path) field.ErrorList {
	if resources == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validateMatchResources(resources, at)
	if len(resources.ResourceRules) == 0 {
		errs = append(errs, field.Required(at.Child("resourceRules"), ""))
	}
	return errs
}

// validateMatchResources checks selectors and rules. Missing fields have their defaults.
func validateMatchResources(resources *admissionregistrationv1.MatchResources, at *field.Path) (errs field.ErrorList) {
	if resources == nil {
		return nil
	}
	if !slices.Contains(matchPolicies, *resources.MatchPolicy) {
		errs = append(errs, field.NotSupported(at.Child("matchPolicy"), *resources.MatchPolicy, matchPolicies))
	}
	errs = append(errs, validateSelector(resources.NamespaceSelector, at.Child("namespaceSelector"))...)
	errs = append(errs, validateSelector(resources.ObjectSelector, at.Child("objectSelector"))...)
	for i, rule := range resources.ResourceRules {
		errs = append(errs, validateNamedRule(rule, at.Child("resourceRules").Index(i))...)
	}
	for i, rule := range resources.ExcludeResourceRules {
		errs = append(errs, validateNamedRule(rule, at.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

func validateSelector(selector *metav1.LabelSelector, at *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, at)
}

func validateMutatedOperations(resources *admissionregistrationv1.MatchResources,
	at *field.Path) (errs field.ErrorList) {
	if resources == nil {
		return nil
	}
	for _, rule := range resources.ResourceRules {
		for _, operation := range rule.Operations {
			if !slices.Contains(mutatedOperations, operation) {
				errs = append(errs, field.NotSupported(at, operation, mutatedOperations))
			}
		}
	}
	return errs
}

func validateNamedRule(rule admissionregistrationv1.NamedRuleWithOperations, at *field.Path) (errs field.ErrorList) {
	for i, name := range rule.ResourceNames {
		at := at.Child("resourceNames").Index(i)
		for _, message := range content.IsPathSegmentName(name) {
			errs = append(errs, field.Invalid(at, name, message))
		}
		if slices.Contains(rule.ResourceNames[:i], name) {
			errs = append(errs, field.Duplicate(at, name))
		}
	}
	if len(rule.Operations) == 0 {
		errs = append(errs, field.Required(at.Child("operations"), ""))
	}
	errs = append(errs, validateWildcard(rule.Operations, "if '*' is present, must not specify other operations",
		at.Child("operations"))...)
	for i, operation := range rule.Operations {
		if !slices.Contains(operations, operation) {
			errs = append(errs, field.NotSupported(at.Child("operations").Index(i), operation, operations))
		}
	}
	if len(rule.APIGroups) == 0 {
		errs = append(errs, field.Required(at.Child("apiGroups"), ""))
	}
	errs = append(errs, validateWildcard(rule.APIGroups, "if '*' is present, must not specify other API groups",
		at.Child("apiGroups"))...)
	if len(rule.APIVersions) == 0 {
		errs = append(errs, field.Required(at.Child("apiVersions"), ""))
	}
	errs = append(errs, validateWildcard(rule.APIVersions, "if '*' is present, must not specify other API versions",
		at.Child("apiVersions"))...)
	for i, version := range rule.APIVersions {
		if version == "" {
			errs = append(errs, field.Required(at.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, validateResources(rule.Resources, at.Child("resources"))...)
	if rule.Scope != nil && !slices.Contains(scopes, *rule.Scope) {
		errs = append(errs, field.NotSupported(at.Child("scope"), *rule.Scope, scopes))
	}
	return errs
}

// validateWildcard returns an error for a list with "*" and something else.
func validateWildcard[T ~string](values []T, message string, at *field.Path) field.ErrorList {
	if len(values) < 2 || !slices.Contains(values, "*") {
		return nil
	}
	return field.ErrorList{field.Invalid(at, values, message)}
}

// validateResources checks resources and subresources, a name or "*" each.
func validateResources(resources []string, at *field.Path) (errs field.ErrorList) {
	if len(resources) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	plain := false // whether the last entry without a subresource has a name, as in kube-apiserver
	var before []string
	for i, entry := range resources {
		resource, subresource, hasSubresource := strings.Cut(entry, "/")
		switch {
		case entry == "":
			errs = append(errs, field.Required(at.Index(i), ""))
		case !hasSubresource:
			plain = entry != "*"
		default:
			for _, wide := range []string{resource + "/*", "*/" + subresource} {
				if slices.Contains(before, wide) {
					errs = append(errs, field.Invalid(at.Index(i), entry, fmt.Sprintf("if '%s' is present, must not specify %s", wide,
						entry)))
				}
			}
		}
		before = append(before, entry)
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(at, resources, "if '*/*' is present, must not specify other resources"))
	}
	if plain && slices.Contains(resources, "*") {
		errs = append(errs, field.Invalid(at, resources,
			"if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}

func validateParamRef(ref *admissionregistrationv1.ParamRef, at *field.Path) (errs field.ErrorList) {
	if ref == nil {
		return nil
	}
	const exclusive = "name and selector are mutually exclusive"
	if ref.Name != "" {
		for _, message := range content.IsPathSegmentName(ref.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), ref.Name, message))
		}
		if ref.Selector != nil {
			errs = append(errs, field.Forbidden(at.Child("name"), exclusive))
		}
	}
	if ref.Selector != nil {
		errs = append(errs, validateSelector(ref.Selector, at.Child("selector"))...)
		if ref.Name != "" {
			errs = append(errs, field.Forbidden(at.Child("selector"), exclusive))
		}
	}
	if ref.Name == "" && ref.Selector == nil {
		errs = append(errs, field.Required(at, "one of name or selector must be specified"))
	}
	var action admissionregistrationv1.ParameterNotFoundActionType
	if ref.ParameterNotFoundAction != nil {
		action = *ref.ParameterNotFoundAction
	}
	return append(errs, oneOf(action, notFoundActions, at.Child("parameterNotFoundAction"))...)
}

func validateActions(given []admissionregistrationv1.ValidationAction, at *field.Path) (errs field.ErrorList) {
	for i, action := range given {
		if !slices.Contains(actions, action) {
			errs = append(errs, field.NotSupported(at.Index(i), action, actions))
		}
		if slices.Contains(given[:i], action) {
			errs = append(errs, field.Duplicate(at.Index(i), action))
		}
	}
	if slices.Contains(given, admissionregistrationv1.Deny) && slices.Contains(given, admissionregistrationv1.Warn) {
		errs = append(errs, field.Invalid(at, given,
			"must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	return errs
}
