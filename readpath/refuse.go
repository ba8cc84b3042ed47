package readpath

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// refuse answers who asks for a revision that has not come, or while etcd is away: it was
// waited for here, and the API server would wait as long once more. All other errors are
// passed on.
func (s *Reader) refuse(err error, asked query) (http.HandlerFunc, reason) {
	var known *apierrors.StatusError
	switch {
	case apistorage.IsUnreachable(err):
		return s.fail(apierrors.NewServerTimeout(s.Resource.Resource.GroupResource(), asked.info.Verb, retryAfter)), ""
	case apierrors.IsTooManyRequests(err) && errors.As(err, &known):
		return s.fail(known), ""
	case waitedFor(err, asked):
		return s.fail(err), ""
	}
	return nil, passState
}

// retryAfter is when to ask again while etcd is away, in seconds. As an API server says.
const retryAfter = 2

// waitedFor reports whether an error is that a revision has not come which the client
// has named: where it has not, etcd may know better.
func waitedFor(err error, asked query) bool {
	return asked.options.ResourceVersion != "" && apistorage.IsTooLargeResourceVersion(err)
}

// fail answers with an error, as an API server does.
func (s *Reader) fail(err error) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		responsewriters.ErrorNegotiated(err, s.Serializer, s.Kind.GroupVersion(), w, q)
	}
}
