package access

import (
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Impersonates reports whether a request has a header that names another user.
func Impersonates(q *http.Request) bool {
	for name := range q.Header {
		if isImpersonation(name) {
			return true
		}
	}
	return false
}

// isImpersonation reports whether a header names a user to impersonate.
func isImpersonation(header string) bool { return strings.HasPrefix(header, "Impersonate-") }

// RemoveIdentity removes all headers that say who sent a request: the token, which would replace the proxy's, those of
// front proxies, and those that impersonate a user.
func (c *Control) RemoveIdentity(h http.Header) {
	h.Del("Authorization")
	c.certificates.removeHeaders(h)
	for name := range h {
		if isImpersonation(name) {
			h.Del(name)
		}
	}
}

// CheckForwardable returns an error for a user that headers would make another one of: they lose spaces at both ends,
// and empty values.
func CheckForwardable(u user.Info) error {
	values := append([]string{u.GetName()}, u.GetGroups()...)
	for _, extra := range u.GetExtra() {
		values = append(values, extra...)
	}
	if u.GetUID() != "" {
		values = append(values, u.GetUID())
	}
	for _, value := range values {
		if value == "" || strings.Trim(value, " \t") != value || !httpguts.ValidHeaderFieldValue(value) {
			return apierrors.NewForbidden(schema.GroupResource{}, "", errUnforwardable{value})
		}
	}
	return nil
}

// errUnforwardable is why a user is refused.
type errUnforwardable struct{ value string }

func (e errUnforwardable) Error() string {
	return "the proxy cannot act as a user whose name, UID, group or extra field is " + strconv.Quote(e.value) +
		": impersonation headers can't carry it. Use a bearer token"
}
