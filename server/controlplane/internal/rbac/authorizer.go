package rbac

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/keepwatch/keepwatch/server/startauthorizer"
)

// Authorizer decides about requests by a policy. What the policy does not allow waits, after a start, until the policy
// is read.
type Authorizer struct {
	startauthorizer.Authorizer
	policy *Policy
}

// NewAuthorizer returns the authorizer of a policy.
func NewAuthorizer(policy *Policy) *Authorizer {
	return &Authorizer{startauthorizer.New(known{policy}, policy.read), policy}
}

// known decides by what is read of a policy.
type known struct{ policy *Policy }

// Authorize allows a request that a rule of its user allows, and every request of system:masters. About others it has
// no opinion, which means that they are forbidden. The reason names the binding, or the roles that are missing.
func (k known) Authorize(_ context.Context, request authorizer.Attributes) (authorizer.Decision, string, error) {
	if isMaster(request.GetUser()) {
		return authorizer.DecisionAllow, "", nil
	}
	var allowed string
	missing := k.policy.visit(request.GetUser(), request.GetNamespace(), func(by grant, rule *rbacv1.PolicyRule) bool {
		if !allows(rule, request) {
			return true
		}
		allowed = fmt.Sprintf("RBAC: allowed by %s", by)
		return false
	})
	switch {
	case allowed != "":
		return authorizer.DecisionAllow, allowed, nil
	case missing != nil:
		return authorizer.DecisionNoOpinion, fmt.Sprintf("RBAC: %v", missing), nil
	default:
		return authorizer.DecisionNoOpinion, "", nil
	}
}

// isMaster reports whether a user may do everything. The server's own clients are such users.
func isMaster(u user.Info) bool { return slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) }

// ConditionsAwareAuthorize is Authorize: no rule has conditions.
func (k known) ConditionsAwareAuthorize(ctx context.Context,
	request authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(k.Authorize(ctx, request))
}

// EvaluateConditions returns an error: no rule has conditions.
func (known) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision,
	authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor returns the rules of a user in a namespace. With an error, they are those that were found.
func (a *Authorizer) RulesFor(ctx context.Context, u user.Info,
	namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	var resources []authorizer.ResourceRuleInfo
	var paths []authorizer.NonResourceRuleInfo
	a.Wait(ctx)
	rules, err := a.policy.rules(u, namespace)
	for _, rule := range rules {
		if len(rule.Resources) > 0 {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames,
			})
		}
		if len(rule.NonResourceURLs) > 0 {
			paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{Verbs: rule.Verbs,
				NonResourceURLs: rule.NonResourceURLs})
		}
	}
	return resources, paths, false, err
}
