package controlplane

import (
	"context"
	"net/http"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// attempt is a request that a filter may refuse.
type attempt struct {
	mu       sync.Mutex
	user     user.Info // nil until it is authorized or denied
	admitted bool      // or reported
}

type attemptKey struct{}

// update changes the attempt of a context, if it has one.
func update(ctx context.Context, change func(*attempt)) {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		a.mu.Lock()
		defer a.mu.Unlock()
		change(a)
	}
}

// namingUsers is an authorizer that notes whose request it decides about, who may be impersonated.
type namingUsers struct{ authorizer.Authorizer }

func (n namingUsers) Authorize(ctx context.Context, of authorizer.Attributes) (authorizer.Decision, string, error) {
	update(ctx, func(a *attempt) { a.user = of.GetUser() })
	return n.Authorizer.Authorize(ctx, of)
}

func (n namingUsers) ConditionsAwareAuthorize(ctx context.Context,
	of authorizer.Attributes) authorizer.ConditionsAwareDecision {
	update(ctx, func(a *attempt) { a.user = of.GetUser() })
	return n.Authorizer.ConditionsAwareAuthorize(ctx, of)
}

// reporting reports the requests that the filters refuse.
func (build handlerChain) reporting(refused func(r *http.Request, status int)) handlerChain {
	return func(handlers http.Handler, config *genericapiserver.Config) http.Handler {
		filters := build(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			update(r.Context(), func(a *attempt) { a.admitted = true })
			handlers.ServeHTTP(w, r)
		}), config)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a := &attempt{}
			answer := &refusalWriter{ResponseWriter: w, refused: func(status int) {
				if by, ok := a.refusal(); ok {
					refused(describe(r, by, config.RequestInfoResolver), status)
				}
			}}
			filters.ServeHTTP(responsewriter.WrapForHTTP1Or2(answer), r.WithContext(context.WithValue(r.Context(), attemptKey{},
				a)))
		})
	}
}

// refusal reports whether a filter has refused the request, once, and whose request it is, if that is known.
func (a *attempt) refusal() (by user.Info, refused bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	refused, a.admitted = !a.admitted, true
	return a.user, refused
}

// describe returns a request with what is known of it.
func describe(r *http.Request, by user.Info, resolver request.RequestInfoResolver) *http.Request {
	ctx := r.Context()
	if info, err := resolver.NewRequestInfo(r); err == nil {
		ctx = request.WithRequestInfo(ctx, info)
	}
	if by != nil {
		ctx = request.WithUser(ctx, by)
	}
	return r.WithContext(ctx)
}

// refusalWriter reports the status of an error before the client receives it.
type refusalWriter struct {
	http.ResponseWriter
	refused func(status int)
}

func (w *refusalWriter) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		w.refused(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap returns the response; see responsewriter.UserProvidedDecorator.
func (w *refusalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
