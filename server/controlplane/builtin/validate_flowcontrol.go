package builtin

import (
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/util/shufflesharding"
)

// maxQueues is the largest number of queues of a priority level.
const maxQueues = 10_000_000

// flowVerbs are the verbs that a rule of a flow schema can name, besides "*".
var flowVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}

func validateFlowSchema(s *flowcontrolv1.FlowSchema) (errs field.ErrorList) {
	at := field.NewPath("spec")
	switch precedence := s.Spec.MatchingPrecedence; {
	case precedence <= 0:
		errs = append(errs, field.Invalid(at.Child("matchingPrecedence"), precedence, "must be a positive value"))
	case precedence > flowcontrolv1.FlowSchemaMaxMatchingPrecedence:
		errs = append(errs, field.Invalid(at.Child("matchingPrecedence"), precedence,
			fmt.Sprintf("must not be greater than %v", flowcontrolv1.FlowSchemaMaxMatchingPrecedence)))
	case precedence == 1 && s.Name != flowcontrolv1.FlowSchemaNameExempt:
		errs = append(errs, field.Invalid(at.Child("matchingPrecedence"), precedence,
			"only the schema named 'exempt' may have matchingPrecedence 1"))
	}
	supported := []flowcontrolv1.FlowDistinguisherMethodType{flowcontrolv1.FlowDistinguisherMethodByNamespaceType,
		flowcontrolv1.FlowDistinguisherMethodByUserType}
	if method := s.Spec.DistinguisherMethod; method != nil && !slices.Contains(supported, method.Type) {
		errs = append(errs, field.NotSupported(at.Child("distinguisherMethod", "type"), method, supported))
	}
	level, name := at.Child("priorityLevelConfiguration", "name"), s.Spec.PriorityLevelConfiguration.Name
	if name == "" {
		errs = append(errs, field.Required(level, "must reference a priority level"))
	} else {
		errs = append(errs, invalids(level, name, validation.NameIsDNSSubdomain(name, false))...)
	}
	for i := range s.Spec.Rules {
		errs = append(errs, validateFlowRule(at.Child("rules").Index(i), &s.Spec.Rules[i])...)
	}
	for _, mandatory := range bootstrap.MandatoryFlowSchemas {
		if mandatory.Name == s.Name && !equality.Semantic.DeepEqual(s.Spec, mandatory.Spec) {
			errs = append(errs, field.Invalid(at, s.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", s.Name)))
		}
	}
	return errs
}

func validateFlowRule(at *field.Path, rule *flowcontrolv1.PolicyRulesWithSubjects) (errs field.ErrorList) {
	if len(rule.Subjects) == 0 {
		errs = append(errs, field.Required(at.Child("subjects"), "subjects must contain at least one value"))
	}
	for i := range rule.Subjects {
		errs = append(errs, validateFlowSubject(at.Child("subjects").Index(i), &rule.Subjects[i])...)
	}
	if len(rule.ResourceRules)+len(rule.NonResourceRules) == 0 {
		errs = append(errs, field.Required(at, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i := range rule.ResourceRules {
		errs = append(errs, validateFlowResources(at.Child("resourceRules").Index(i), &rule.ResourceRules[i])...)
	}
	for i := range rule.NonResourceRules {
		errs = append(errs, validateFlowPaths(at.Child("nonResourceRules").Index(i), &rule.NonResourceRules[i])...)
	}
	return errs
}

// validateFlowSubject returns errors unless a subject has exactly the field of its kind.
func validateFlowSubject(at *field.Path, subject *flowcontrolv1.Subject) (errs field.ErrorList) {
	kinds := []flowcontrolv1.SubjectKind{flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount,
		flowcontrolv1.SubjectKindUser}
	if !slices.Contains(kinds, subject.Kind) {
		return field.ErrorList{field.NotSupported(at.Child("kind"), subject.Kind, kinds)}
	}
	for _, part := range []struct {
		kind  flowcontrolv1.SubjectKind
		name  string
		given bool
		check func(*field.Path) field.ErrorList
	}{
		{flowcontrolv1.SubjectKindServiceAccount, "serviceAccount", subject.ServiceAccount != nil,
			func(at *field.Path) field.ErrorList {
				return validateFlowAccount(at, subject.ServiceAccount)
			}},
		{flowcontrolv1.SubjectKindUser, "user", subject.User != nil, func(at *field.Path) field.ErrorList {
			return requiredName(at, subject.User.Name)
		}},
		{flowcontrolv1.SubjectKindGroup, "group", subject.Group != nil, func(at *field.Path) field.ErrorList {
			return requiredName(at, subject.Group.Name)
		}},
	} {
		path := at.Child(part.name)
		switch matches := part.kind == subject.Kind; {
		case matches && !part.given:
			errs = append(errs, field.Required(path, fmt.Sprintf("%s is required when subject kind is '%s'", part.name,
				part.kind)))
		case matches:
			errs = append(errs, part.check(path)...)
		case part.given:
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("%s is forbidden when subject kind is not '%s'", part.name,
				part.kind)))
		}
	}
	return errs
}

func requiredName(at *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at.Child("name"), "")}
	}
	return nil
}

func validateFlowAccount(at *field.Path, account *flowcontrolv1.ServiceAccountSubject) field.ErrorList {
	errs := requiredName(at, account.Name)
	if account.Name != "" && account.Name != flowcontrolv1.NameAll {
		errs = append(errs, invalids(at.Child("name"), account.Name, validation.ValidateServiceAccountName(account.Name,
			false))...)
	}
	if account.Namespace == "" {
		return append(errs, field.Required(at.Child("namespace"), "must specify namespace for service account"))
	}
	return append(errs, invalids(at.Child("namespace"), account.Namespace,
		validation.ValidateNamespaceName(account.Namespace, false))...)
}

func validateFlowVerbs(at *field.Path, verbs []string) field.ErrorList {
	errs := someOrAll(at, verbs, "verbs must contain at least one value",
		"if '*' is present, must not specify other verbs")
	unknown := func(verb string) bool { return !slices.Contains(flowVerbs, verb) }
	if !slices.Contains(verbs, "*") && slices.ContainsFunc(verbs, unknown) {
		errs = append(errs, field.NotSupported(at, verbs, flowVerbs))
	}
	return errs
}

// someOrAll returns an error for a list without values, and for one with "*" and other values.
func someOrAll(at *field.Path, values []string, missing, others string) field.ErrorList {
	switch {
	case len(values) == 0:
		return field.ErrorList{field.Required(at, missing)}
	case len(values) > 1 && slices.Contains(values, "*"):
		return field.ErrorList{field.Invalid(at, values, others)}
	default:
		return nil
	}
}

func validateFlowResources(at *field.Path, rule *flowcontrolv1.ResourcePolicyRule) field.ErrorList {
	errs := validateFlowVerbs(at.Child("verbs"), rule.Verbs)
	errs = append(errs, someOrAll(at.Child("apiGroups"), rule.APIGroups,
		"resource rules must supply at least one api group", "if '*' is present, must not specify other api groups")...)
	errs = append(errs, someOrAll(at.Child("resources"), rule.Resources,
		"resource rules must supply at least one resource", "if '*' is present, must not specify other resources")...)
	namespaces := at.Child("namespaces")
	if len(rule.Namespaces) > 0 || !rule.ClusterScope {
		errs = append(errs, someOrAll(namespaces, rule.Namespaces,
			"resource rules that are not cluster scoped must supply at least one namespace",
			"if '*' is present, must not specify other namespaces")...)
	}
	if slices.Contains(rule.Namespaces, "*") {
		return errs
	}
	for i, name := range rule.Namespaces {
		for _, message := range validation.ValidateNamespaceName(name, false) {
			errs = append(errs, field.Invalid(namespaces.Index(i), name,
				"each member of this list must be '*' or a DNS-1123 label; "+message))
		}
	}
	return errs
}

func validateFlowPaths(at *field.Path, rule *flowcontrolv1.NonResourcePolicyRule) field.ErrorList {
	errs := validateFlowVerbs(at.Child("verbs"), rule.Verbs)
	paths := at.Child("nonResourceURLs")
	errs = append(errs, someOrAll(paths, rule.NonResourceURLs,
		"nonResourceURLs must contain at least one value", "if '*' is present, must not specify other non-resource URLs")...)
	if slices.Contains(rule.NonResourceURLs, "*") {
		return errs
	}
	for i, path := range rule.NonResourceURLs {
		if problem := flowPathProblem(path); problem != "" {
			errs = append(errs, field.Invalid(paths.Index(i), path, problem))
		}
	}
	return errs
}

// flowPathProblem says why a path is not valid, or nothing.
func flowPathProblem(path string) string {
	switch wildcards := strings.Count(path, "*"); {
	case path == "":
		return "must not be empty"
	case path[0] != '/':
		return "must start with slash"
	case strings.Contains(path, " "):
		return "must not contain white-space"
	case strings.Contains(path, "//"):
		return "must not contain double slash"
	case wildcards > 1 || wildcards == 1 && !strings.HasSuffix(path, "/*"):
		return "wildcard can only do suffix matching"
	default:
		return ""
	}
}

func validatePriorityLevel(l *flowcontrolv1.PriorityLevelConfiguration) (errs field.ErrorList) {
	if key := flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey; l.Annotations[key] != "" {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations"),
			fmt.Sprintf("annotation '%s' is forbidden", key)))
	}
	at, spec := field.NewPath("spec"), &l.Spec
	exempt := l.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt
	if exempt != (spec.Type == flowcontrolv1.PriorityLevelEnablementExempt) {
		errs = append(errs, field.Invalid(at.Child("type"), spec.Type, "must be 'Exempt' if and only if `name` is 'exempt'"))
	}
	switch spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if spec.Limited != nil {
			errs = append(errs, field.Forbidden(at.Child("limited"), "must be nil if the type is not Limited"))
		}
		if spec.Exempt != nil {
			errs = append(errs, validateShares(at.Child("exempt"), spec.Exempt.NominalConcurrencyShares,
				spec.Exempt.LendablePercent)...)
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if spec.Exempt != nil {
			errs = append(errs, field.Forbidden(at.Child("exempt"), "must be nil if the type is Limited"))
		}
		if spec.Limited == nil {
			errs = append(errs, field.Required(at.Child("limited"), "must not be empty when type is Limited"))
		} else {
			errs = append(errs, validateLimited(at.Child("limited"), spec.Limited)...)
		}
	case "":
		errs = append(errs, field.Required(at.Child("type"), ""))
	default:
		errs = append(errs, field.NotSupported(at.Child("type"), spec.Type,
			[]flowcontrolv1.PriorityLevelEnablement{flowcontrolv1.PriorityLevelEnablementExempt,
				flowcontrolv1.PriorityLevelEnablementLimited}))
	}
	return append(errs, validateMandatoryLevel(at, l)...)
}

// validateMandatoryLevel returns an error if a level has the name of a mandatory one and another spec. The field exempt
// of the level with that name can be changed.
func validateMandatoryLevel(at *field.Path, l *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	for _, mandatory := range bootstrap.MandatoryPriorityLevelConfigurations {
		if mandatory.Name != l.Name {
			continue
		}
		spec, except := l.Spec, ""
		if l.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
			spec.Exempt, except = mandatory.Spec.Exempt, " except the 'spec.exempt' field"
		}
		if !equality.Semantic.DeepEqual(spec, mandatory.Spec) {
			return field.ErrorList{field.Invalid(at, l.Spec, fmt.Sprintf("spec of '%s'%s must equal the fixed value", l.Name,
				except))}
		}
	}
	return nil
}

func validateShares(at *field.Path, shares, lendable *int32) (errs field.ErrorList) {
	if shares != nil && *shares < 0 {
		errs = append(errs, field.Invalid(at.Child("nominalConcurrencyShares"), *shares, "must be a non-negative integer"))
	}
	if lendable != nil && (*lendable < 0 || *lendable > 100) {
		errs = append(errs, field.Invalid(at.Child("lendablePercent"), *lendable, "must be between 0 and 100, inclusive"))
	}
	return errs
}

func validateLimited(at *field.Path, limited *flowcontrolv1.LimitedPriorityLevelConfiguration) field.ErrorList {
	errs := validateShares(at, limited.NominalConcurrencyShares, limited.LendablePercent)
	if borrowing := limited.BorrowingLimitPercent; borrowing != nil && *borrowing < 0 {
		errs = append(errs, field.Invalid(at.Child("borrowingLimitPercent"), *borrowing,
			"if specified, must be a non-negative integer"))
	}
	response, queuing := at.Child("limitResponse"), limited.LimitResponse.Queuing
	switch limited.LimitResponse.Type {
	case flowcontrolv1.LimitResponseTypeReject:
		if queuing != nil {
			errs = append(errs, field.Forbidden(response.Child("queuing"),
				"must be nil if limited.limitResponse.type is not Limited"))
		}
	case flowcontrolv1.LimitResponseTypeQueue:
		if queuing == nil {
			return append(errs, field.Required(response.Child("queuing"),
				"must not be empty if limited.limitResponse.type is Limited"))
		}
		errs = append(errs, validateQueuing(response.Child("queuing"), queuing)...)
	case "":
		errs = append(errs, field.Required(response.Child("type"), ""))
	default:
		errs = append(errs, field.NotSupported(response.Child("type"), limited.LimitResponse.Type,
			[]flowcontrolv1.LimitResponseType{flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject}))
	}
	return errs
}

func validateQueuing(at *field.Path, q *flowcontrolv1.QueuingConfiguration) (errs field.ErrorList) {
	if q.QueueLengthLimit <= 0 {
		errs = append(errs, field.Invalid(at.Child("queueLengthLimit"), q.QueueLengthLimit, "must be positive"))
	}
	switch {
	case q.Queues <= 0:
		errs = append(errs, field.Invalid(at.Child("queues"), q.Queues, "must be positive"))
	case q.Queues > maxQueues:
		errs = append(errs, field.Invalid(at.Child("queues"), q.Queues, fmt.Sprintf("must not be greater than %d",
			maxQueues)))
	}
	hand := at.Child("handSize")
	switch {
	case q.HandSize <= 0:
		return append(errs, field.Invalid(hand, q.HandSize, "must be positive"))
	case q.HandSize > q.Queues:
		return append(errs, field.Invalid(hand, q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues)))
	}
	if bits := shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize)); bits > shufflesharding.MaxHashBits {
		errs = append(errs, field.Invalid(hand, q.HandSize,
			fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d",
				q.Queues, q.HandSize, shufflesharding.MaxHashBits)))
	}
	return errs
}
