package readpath

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// admit waits until the request's user may hold n bytes of buffers, and then returns the response that
// prepare returns, which holds them until it is written. If the wait is too long, the response is 429, or the reason
// to delegate the request.
func (s *Reader) admit(q *http.Request, n int64, prepare func() (http.HandlerFunc, reason)) (http.HandlerFunc, reason) {
	lists, flow := s.budget.lists, flowOf(q.Context())
	release, err := lists.acquire(q.Context(), flow, n)
	if errors.Is(err, errBusy) && s.budget.delegateBusy && s.view == nil { // the API server refuses what is in a view
		return nil, reasonBusy
	}
	if errors.Is(err, errBusy) {
		s.budget.counts.busy.Inc()
		return s.errorHandler(apierrors.NewTooManyRequests(err.Error(), 1)), ""
	}
	if err != nil {
		return func(http.ResponseWriter, *http.Request) {}, "" // the client is gone
	}
	prepared := false
	defer func() { // also when encoding panics, which ends only the request
		if !prepared {
			release()
		}
	}()
	response, why := prepare()
	if why != "" {
		return nil, why
	}
	prepared = true
	return func(w http.ResponseWriter, q *http.Request) {
		defer release()
		defer s.budget.counts.countBuffer(n)()
		tracked, done := lists.track(w, q, flow)
		defer done()
		response(tracked, q)
	}, ""
}

// flowOf returns the flow whose share of the buffers a response counts for.
func flowOf(ctx context.Context) string {
	if user, ok := request.UserFrom(ctx); ok {
		return Flow(user)
	}
	return ""
}

// Flow returns the owner of one share of the buffers for responses: a user, or all service accounts of one namespace. A
// user who may create one of these accounts may create any number.
func Flow(u user.Info) string {
	if namespace, _, err := serviceaccount.SplitUsername(u.GetName()); err == nil {
		return serviceaccount.MakeNamespaceGroupName(namespace)
	}
	return u.GetName()
}
