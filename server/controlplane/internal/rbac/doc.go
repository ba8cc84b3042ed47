// Package rbac decides what users may do, by the Roles, ClusterRoles and bindings in the API, as described in
// https://kubernetes.io/docs/reference/access-authn-authz/rbac/. Members of system:masters may do everything.
//
// A [Policy] follows the roles and bindings by informers of the server's own client. A change applies as soon as its
// event has arrived: some milliseconds after the write was answered, as in kube-apiserver.
//
//	policy.go       Policy: which rules a user has
//	subject.go      which users a binding names
//	rule.go         which requests a rule allows
//	authorizer.go   Authorizer: decides about requests, and lists a user's rules, once the policy is read
//	escalation.go   Escalation: refuses roles and bindings that grant more than their author has
//	missing.go      describes the rights that an author lacks
//	aggregation.go  Aggregator: the rules of ClusterRoles that select others
//	defaults.go     EnsureDefaults: the roles and bindings that every cluster has
//	defaults.ndjson these roles and bindings, as kube-apiserver v1.36.3 lists them
package rbac
