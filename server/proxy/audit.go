package proxy

import (
	"net/http"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Audit is an audit log of what the proxy answers itself. The log of the server has the other requests.
type Audit struct {
	Backend audit.Backend // runs until the proxy has ended
	Policy  audit.PolicyRuleEvaluator
}

// decisionAnnotation is where k8s.io/apiserver records the decision in an event.
const decisionAnnotation = "authorization.k8s.io/decision"

// records returns a handler that records what next answers to a caller whom the server has allowed a request, or
// forbidden it: its context has both, and its Audit-ID. A nil *Audit records nothing.
func (a *Audit) records(decision string, next http.Handler) http.Handler {
	if a == nil {
		return next
	}
	decided := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		audit.AddAuditAnnotation(q.Context(), decisionAnnotation, decision)
		next.ServeHTTP(w, q)
	})
	return genericapifilters.WithAudit(decided, a.Backend, withoutObjects{a.Policy}, endsLate)
}

// allowed is records for reads.
func (a *Audit) allowed(next http.Handler) http.Handler { return a.records("allow", next) }

// endsLate reports whether the beginning of an answer is an event of its own.
func endsLate(q *http.Request, info *request.RequestInfo) bool {
	return info.IsResourceRequest && info.Verb == "watch" || q.URL.Path == eventsPath
}

// withoutObjects records no objects of answers: the proxy does not decode them. The level of such an event is Request.
type withoutObjects struct{ audit.PolicyRuleEvaluator }

// EvaluatePolicyRule returns what to record of a request.
func (p withoutObjects) EvaluatePolicyRule(a authorizer.Attributes) audit.RequestAuditConfig {
	config := p.PolicyRuleEvaluator.EvaluatePolicyRule(a)
	if config.Level == auditinternal.LevelRequestResponse {
		config.Level = auditinternal.LevelRequest
	}
	return config
}
