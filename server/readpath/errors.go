package readpath

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// answerError returns the response to a request that failed after a wait: for a revision that did not
// arrive, or for the source, which is unavailable. The API server would wait as long again. All other
// requests are delegated: the API server's handlers word their errors, and the source can answer a consistent read
// that the cache is too late for.
func (s *Reader) answerError(err error, r readRequest) (http.HandlerFunc, reason) {
	var known *apierrors.StatusError
	switch {
	case apistorage.IsUnreachable(err):
		return s.errorHandler(apierrors.NewServerTimeout(s.resource.Resource.GroupResource(), r.info.Verb, retryAfter)), ""
	case apierrors.IsTooManyRequests(err) && errors.As(err, &known):
		return s.errorHandler(known), ""
	case waitedFor(err, r):
		return s.errorHandler(err), ""
	case apistorage.IsTooLargeResourceVersion(err):
		return nil, reasonLate
	}
	return nil, reasonState
}

// retryAfter is the Retry-After of a response while the source is unavailable, in seconds, as in an API
// server.
const retryAfter = 2

// waitedFor reports whether a read failed because the cache has not reached the revision that the
// client named. If the client named none, the source can still answer.
func waitedFor(err error, r readRequest) bool {
	return r.options.ResourceVersion != "" && apistorage.IsTooLargeResourceVersion(err)
}

// errorHandler returns the response with an error, as an API server encodes it.
func (s *Reader) errorHandler(err error) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		responsewriters.ErrorNegotiated(err, s.resource.Serializer, s.resource.Kind.GroupVersion(), w, q)
	}
}
