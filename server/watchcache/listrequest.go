package watchcache

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
)

// ListRequest is a request for a list: of which keys, of which state, and which objects of it.
type ListRequest struct {
	scope
	// revision and match are the state; match is Exact, NotOlderThan, or "" for the newest.
	revision  keepwatch.Revision
	match     metav1.ResourceVersionMatch
	start     string // the path that the page begins at, "" for the first page
	options   apistorage.ListOptions
	predicate predicate
	index     []apistorage.MatchValue
}

// ListRequest parses a request for the objects at a key or below it. The Kubernetes API defines
// which state resourceVersion, its match, limit and continue ask for.
func (c *Cache) ListRequest(ctx context.Context, key string, options apistorage.ListOptions) (ListRequest, error) {
	s, err := c.scope(key, options.Recursive)
	if err != nil {
		return ListRequest{}, err
	}
	r := ListRequest{scope: s, options: options}
	if r.predicate, err = c.predicateOf(options.Predicate); err != nil {
		return ListRequest{}, err
	}
	if _, _, err := apistorage.ValidateListOptions(s.key, versioner, options); err != nil {
		return ListRequest{}, err
	}
	revision, err := versioner.ParseResourceVersion(options.ResourceVersion)
	if err != nil {
		return ListRequest{}, err
	}
	r.revision = keepwatch.Revision(revision)
	switch {
	case r.continuing():
		return r.continued()
	case options.ResourceVersionMatch != "":
		r.match = options.ResourceVersionMatch
	case s.recursive && options.Predicate.Limit > 0 && revision > 0:
		r.match = metav1.ResourceVersionMatchExact
	case options.ResourceVersion != "":
		r.match = metav1.ResourceVersionMatchNotOlderThan
	}
	if r.match == metav1.ResourceVersionMatchExact && revision == 0 {
		r.match = ""
	}
	if options.ResourceVersion == "0" || !s.recursive {
		r.predicate.Limit = 0
	}
	if !r.predicate.Empty() && r.match != metav1.ResourceVersionMatchExact {
		r.index = r.predicate.MatcherIndex(ctx)
	}
	return r, nil
}

// continuing reports whether the request has a continue token.
func (r ListRequest) continuing() bool { return r.recursive && r.options.Predicate.Continue != "" }

// paged reports whether the request is for a page of a list.
func (r ListRequest) paged() bool { return r.continuing() || r.recursive && r.predicate.Limit > 0 }

// continued returns the request for the page that a continue token names.
func (r ListRequest) continued() (ListRequest, error) {
	start, revision, err := apistorage.DecodeContinue(r.options.Predicate.Continue, r.key)
	if err != nil {
		return ListRequest{}, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: %v", err))
	}
	r.start = r.path + strings.TrimPrefix(start, r.key)
	r.revision, r.match = 0, ""
	if revision > 0 {
		r.revision, r.match = keepwatch.Revision(revision), metav1.ResourceVersionMatchExact
	}
	if r.options.ResourceVersion == "0" {
		r.predicate.Limit = 0 // as kube-apiserver does
	}
	return r, nil
}

// Consistent reports whether the list must show everything that was committed when it was
// requested.
func (r ListRequest) Consistent() bool { return r.match == "" }

// Cheap reports whether the list costs its source little: one object, or a page without
// selectors.
func (r ListRequest) Cheap() bool {
	return r.predicate.Empty() && r.predicate.Limit > 0 || !r.recursive
}
