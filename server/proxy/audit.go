package proxy

import (
	"net/http"
	"strings"

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

// allowed is records for what the server has allowed.
func (a *Audit) allowed(next http.Handler) http.Handler { return a.records("allow", next) }

// viewAnnotation is where the event of a personal view has how many namespaces the server has allowed, as the header of
// the answer: the decision about all of them was another one.
const viewAnnotation = "keepwatch.io/personal-view"

// reads is allowed for reads from memory. The event of a personal view says that it is one.
func (a *Audit) reads(next http.Handler) http.Handler {
	if a == nil {
		return next
	}
	recorded := a.allowed(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if view := w.Header().Get(PersonalHeader); view != "" {
			audit.AddAuditAnnotation(q.Context(), viewAnnotation, view)
		}
		next.ServeHTTP(w, q)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if w.Header().Get(PersonalHeader) != "" {
			q = asSent(q)
		}
		recorded.ServeHTTP(w, q)
	})
}

// asSent returns the request that unindented was called with.
func asSent(q *http.Request) *http.Request {
	q = q.Clone(q.Context())
	_, q.URL.RawQuery, _ = strings.Cut(q.URL.RawQuery, "&")
	return q
}

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
