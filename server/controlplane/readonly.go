package controlplane

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// readOnlyReason is the message of a refused write; it says how to make the write succeed.
const readOnlyReason = "this server is read-only, because its etcd holds data that another server has written: " +
	"write through that server, or start keepwatch serve with --adopt if the etcd is to belong to this one"

// handlerChain wraps handlers in the filters of a request.
type handlerChain func(http.Handler, *genericapiserver.Config) http.Handler

// around puts a handler between the filters and the handlers.
func (build handlerChain) around(middleware func(http.Handler) http.Handler) handlerChain {
	return func(handlers http.Handler, config *genericapiserver.Config) http.Handler {
		return build(middleware(handlers), config)
	}
}

// withoutWrites answers requests that would change an object with 405, after authentication and
// authorization. It refuses dry runs too: their result could differ from that of the server that owns
// the data.
func (build handlerChain) withoutWrites(serializer runtime.NegotiatedSerializer) handlerChain {
	return func(handlers http.Handler, config *genericapiserver.Config) http.Handler {
		return build(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			info, ok := request.RequestInfoFrom(r.Context())
			if !ok || !isWrite(info) {
				handlers.ServeHTTP(w, r)
				return
			}
			refusal := apierrors.NewMethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource},
				info.Verb)
			refusal.ErrStatus.Message = readOnlyReason
			w.Header().Set("Allow", "GET, HEAD")
			responsewriters.ErrorNegotiated(refusal, serializer, schema.GroupVersion{Group: info.APIGroup,
				Version: info.APIVersion}, w, r)
		}), config)
	}
}

// isWrite reports whether a request would change a stored object. Reviews and tokens are created, but not stored.
func isWrite(info *request.RequestInfo) bool {
	if !info.IsResourceRequest || info.APIGroup == "authentication.k8s.io" || info.APIGroup == "authorization.k8s.io" {
		return false
	}
	if info.APIGroup == "" && info.Resource == "serviceaccounts" && info.Subresource == "token" {
		return false
	}
	switch info.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}
