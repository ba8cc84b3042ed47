package proxy

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// representation is how the objects of a resource are followed. Each is followed by itself.
type representation struct {
	encoding encoding
	slim     bool // without managedFields
}

const (
	jsonName     = "json"
	protobufName = "protobuf"
	slimSuffix   = ";drop=managedFields"
)

// String returns the name, which metrics and the index on disk have.
func (r representation) String() string {
	name := jsonName
	if r.encoding.protobuf() {
		name = protobufName
	}
	if r.slim {
		name += slimSuffix
	}
	return name
}

// parseRepresentation is the inverse of String.
func parseRepresentation(name string) (representation, bool) {
	name, slim := strings.CutSuffix(name, slimSuffix)
	return representation{encodingOf(name == protobufName), slim}, name == protobufName || name == jsonName
}

// slimming is which clients receive objects without managedFields: those whose user agents begin with one of its texts.
type slimming []string

// applies reports whether a client receives objects without managedFields.
func (s slimming) applies(userAgent string) bool {
	return slices.ContainsFunc(s, func(prefix string) bool { return strings.HasPrefix(userAgent, prefix) })
}

// representationOf returns what the response to a request is made of. It reports false if the server must answer the
// request.
func (c *caches) representationOf(about *resource, q *http.Request, info *request.RequestInfo) (representation, bool) {
	as := about.encodingOf(q, info)
	return representation{as, c.slimming.applies(q.UserAgent())}, as != nil
}

// mayUse reports whether a client may need a representation that the index on disk has.
func (s slimming) mayUse(as representation) bool {
	if slices.Contains(s, "") {
		return as.slim
	}
	return !as.slim || len(s) > 0
}
