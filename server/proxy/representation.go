package proxy

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/keepwatch/keepwatch/server/proxy/internal/discovery"
	"github.com/keepwatch/keepwatch/server/proxy/internal/verbatim"
)

// slimming is which clients receive objects without managedFields: those whose user agents begin with one of its texts.
type slimming []string

// applies reports whether a client receives objects without managedFields.
func (s slimming) applies(userAgent string) bool {
	return slices.ContainsFunc(s, func(prefix string) bool { return strings.HasPrefix(userAgent, prefix) })
}

// representationOf returns what the response to a request is made of. It reports false if the server must answer the
// request.
func (c *caches) representationOf(about *discovery.Resource, q *http.Request,
	info *request.RequestInfo) (verbatim.Representation, bool) {
	as := encodingOf(about, q, info)
	return verbatim.Representation{Encoding: as, Slim: c.slimming.applies(q.UserAgent())}, as != nil
}

// mayUse reports whether a client may need a representation that the index on disk has.
func (s slimming) mayUse(as verbatim.Representation) bool {
	if slices.Contains(s, "") {
		return as.Slim
	}
	return !as.Slim || len(s) > 0
}
