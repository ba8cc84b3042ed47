package builtin

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/resourcename"
)

// counted are the standard resources of a quota whose amounts are integers, measured the other ones.
var (
	counted = []corev1.ResourceName{
		corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
		corev1.ResourceSecrets,
		corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims, corev1.ResourceServicesNodePorts,
		corev1.ResourceServicesLoadBalancers,
	}
	measured = []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceRequestsCPU,
		corev1.ResourceRequestsMemory,
		corev1.ResourceRequestsStorage, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsCPU,
		corev1.ResourceLimitsMemory,
		corev1.ResourceLimitsEphemeralStorage,
	}
)

// ofPods are the resources of a quota whose scopes select pods; ofClaims those whose scope selects claims.
var (
	ofPods = []corev1.ResourceName{
		corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	}
	ofClaims = []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage}
)

// validateQuota checks the resources and scopes of a ResourceQuota.
func validateQuota(q *corev1.ResourceQuota) (errs field.ErrorList) {
	at, spec := field.NewPath("spec"), &q.Spec
	for name, amount := range spec.Hard {
		errs = append(errs, validateHard(at.Child("hard").Key(string(name)), name, amount)...)
	}
	scopes := at.Child("scopes")
	for _, scope := range spec.Scopes {
		if !isScope(scope) {
			errs = append(errs, field.Invalid(scopes, spec.Scopes, "unsupported scope"))
		}
		if !scopeFits(scope, spec.Hard) {
			errs = append(errs, field.Invalid(scopes, spec.Scopes, "unsupported scope applied to resource"))
		}
	}
	if conflicting(spec.Scopes) {
		errs = append(errs, field.Invalid(scopes, spec.Scopes, "conflicting scopes"))
	}
	if spec.ScopeSelector == nil {
		return errs
	}
	return append(errs, validateScopeSelector(at.Child("scopeSelector", "matchExpressions"), spec)...)
}

func validateHard(at *field.Path, name corev1.ResourceName, amount resource.Quantity) (errs field.ErrorList) {
	errs = validateResourceName(at, name)
	if !strings.Contains(string(name), "/") && !isQuotaResource(name) {
		errs = append(errs, field.Invalid(at, name, "must be a standard resource for quota"))
	}
	if amount.Sign() < 0 {
		errs = append(errs, field.Invalid(at, amount.String(), "must be greater than or equal to 0"))
	}
	if slices.Contains(counted, name) && amount.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(at, amount, "must be an integer"))
	}
	return errs
}

// isQuotaResource reports whether a quota may limit a resource whose name has no domain.
func isQuotaResource(name corev1.ResourceName) bool {
	return slices.Contains(counted, name) || slices.Contains(measured, name) ||
		resourcename.HugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

func isScope(scope corev1.ResourceQuotaScope) bool {
	switch scope {
	case corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating,
		corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort,
		corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity,
		corev1.ResourceQuotaScopeVolumeAttributesClass:
		return true
	}
	return false
}

// scopeFits reports whether all resources of a quota are of what a scope selects.
func scopeFits(scope corev1.ResourceQuotaScope, hard corev1.ResourceList) bool {
	fitting := ofPods
	switch scope {
	case corev1.ResourceQuotaScopeBestEffort:
		fitting = []corev1.ResourceName{corev1.ResourcePods}
	case corev1.ResourceQuotaScopeVolumeAttributesClass:
		fitting = ofClaims
	}
	for name := range hard {
		standard := slices.Contains(counted, name) || slices.Contains(measured, name)
		if isScope(scope) && standard && !slices.Contains(fitting, name) {
			return false
		}
	}
	return true
}

func conflicting(scopes []corev1.ResourceQuotaScope) bool {
	both := func(a, b corev1.ResourceQuotaScope) bool {
		return slices.Contains(scopes, a) && slices.Contains(scopes, b)
	}
	return both(corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort) ||
		both(corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating)
}

func validateScopeSelector(at *field.Path, spec *corev1.ResourceQuotaSpec) (errs field.ErrorList) {
	var scopes []corev1.ResourceQuotaScope
	for _, r := range spec.ScopeSelector.MatchExpressions {
		scopes = append(scopes, r.ScopeName)
		if !isScope(r.ScopeName) {
			errs = append(errs, field.Invalid(at.Child("scopeName"), r.ScopeName, "unsupported scope"))
		}
		if !scopeFits(r.ScopeName, spec.Hard) {
			errs = append(errs, field.Invalid(at, spec.ScopeSelector, "unsupported scope applied to resource"))
		}
		named := r.ScopeName == corev1.ResourceQuotaScopePriorityClass ||
			r.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass
		if isScope(r.ScopeName) && !named && r.Operator != corev1.ScopeSelectorOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), r.Operator,
				"must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "+
					"ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"))
		}
		switch r.Operator {
		case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
			if len(r.Values) == 0 {
				errs = append(errs, field.Required(at.Child("values"),
					"must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
			}
		case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
			if len(r.Values) != 0 {
				errs = append(errs, field.Invalid(at.Child("values"), r.Values,
					"must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
			}
		default:
			errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
		}
	}
	if conflicting(scopes) {
		errs = append(errs, field.Invalid(at, spec.Scopes, "conflicting scopes"))
	}
	return errs
}
