package readpath

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// refuse answers who asks for a revision that has not come: it was waited for here, and
// the API server would wait as long once more. All other errors are passed on.
func (s *Reader) refuse(err error, asked query) (http.HandlerFunc, reason) {
	if !waitedFor(err, asked) {
		return nil, passState
	}
	return s.fail(err), ""
}

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
