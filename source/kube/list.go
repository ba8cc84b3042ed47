package kube

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/paging"
)

// listAccept has the Accept headers of lists in JSON, by Representation.
var listAccept = [...]string{
	WholeObjects: "application/json",
	TableRows:    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
	MetadataOnly: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
}

// List reads one page. It requests a consistent read, or with NotOlderThan any state of at
// least that revision, which a server can answer from its cache. A continue token pins the
// state.
//
// List fails with Unversioned if a page, or each of its objects, has no revision, unless the
// source has read an object with a revision before: then a page without one is a
// ProtocolViolation. It fails with StaleReplica if a first page has a revision below NotOlderThan. It skips objects
// without a name or a revision (ProtocolViolation), and objects that are longer than MaxObject or that Decode rejects
// (Undecodable). It fails if a single JSON string is longer than MaxObject: the decoder can't skip a string without
// buffering it.
func (s *Source) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	if req.Continue == "" {
		s.readDefinition(ctx)
		s.definition.listed()
	}
	l, page, failure := s.page(ctx, s.accept(listAccept), s.listQuery(req), s.builder)
	if failure != nil {
		return keepwatch.Page{}, failure
	}
	if failure := s.checkVersioned(page); failure != nil {
		return keepwatch.Page{}, failure
	}
	if req.Continue == "" && page.Revision < req.NotOlderThan {
		return keepwatch.Page{}, keepwatch.Failed(keepwatch.StaleReplica,
			"list %s: the server showed revision %v, requested was %v or later", s.name, page.Revision, req.NotOlderThan)
	}
	if page.Continue == "" {
		s.cut.Store(0)
	}
	s.storeColumns(l.columns)
	return page, nil
}

// Newest returns the revision of the smallest consistent list: one object's metadata. The
// request has the selectors, because the permission to list may depend on them. It fails with Redefined as
// a watch does if the target stores the definition: a target at that revision is not current then.
func (s *Source) Newest(ctx context.Context) (keepwatch.Revision, error) {
	if s.readDefinition(ctx) {
		return 0, s.definition.failure("list " + s.name)
	}
	q := maps.Clone(s.baseQuery)
	q.Set("limit", "1")
	_, page, failure := s.page(ctx, listAccept[MetadataOnly], q, builder{})
	if failure != nil {
		return 0, failure
	}
	return page.Revision, nil
}

// ListAt reads the whole state at exactly one revision, page by page, and calls emit with
// the objects of each page. The objects have only metadata, for every Representation. ListAt
// is safe for concurrent use. It returns emit's error, or a *keepwatch.Failure: Expired if
// the server no longer has the revision, ProtocolViolation if it shows another one or repeats
// pages.
func (s *Source) ListAt(ctx context.Context, revision keepwatch.Revision, emit func([]keepwatch.Object) error) error {
	var progress paging.Progress
	for token := ""; ; {
		page, failure := s.pageAt(ctx, listAccept[MetadataOnly], revision, token, builder{})
		if failure != nil {
			return failure
		}
		var err error
		if progress, err = progress.After(paging.PageOf(page.Continue, page.Objects)); err != nil {
			return keepwatch.Failed(keepwatch.ProtocolViolation, "list %s: %w", s.name, err)
		}
		if err := emit(page.Objects); err != nil || page.Continue == "" {
			return err
		}
		token = page.Continue
	}
}

// PageAt reads one page of the state at exactly one revision, as List reads one of the newest
// state. token is the previous page's, and empty for the first. Errors are *keepwatch.Failure:
// Expired if the server no longer has the revision, RevisionTooLarge if it does not have it yet,
// ProtocolViolation if it shows another one.
func (s *Source) PageAt(ctx context.Context, revision keepwatch.Revision, token string) (keepwatch.Page, error) {
	page, failure := s.pageAt(ctx, s.accept(listAccept), revision, token, s.builder)
	if failure != nil {
		return keepwatch.Page{}, failure
	}
	return page, nil
}

// pageAt requests a page of the state at exactly one revision and reads it.
func (s *Source) pageAt(ctx context.Context, accept string, revision keepwatch.Revision, token string,
	m builder) (keepwatch.Page, *keepwatch.Failure) {
	q := s.listQuery(keepwatch.ListRequest{Continue: token})
	if token == "" {
		q.Set("resourceVersion", revision.String())
		q.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	}
	_, page, failure := s.page(ctx, accept, q, m)
	if failure == nil && page.Revision != revision {
		failure = keepwatch.Failed(keepwatch.ProtocolViolation,
			"list %s: the server showed revision %v, requested was exactly %v", s.name, page.Revision, revision)
	}
	if failure != nil {
		return keepwatch.Page{}, failure
	}
	return page, nil
}

// page requests a page and reads it.
func (s *Source) page(ctx context.Context, accept string, query url.Values,
	m builder) (*pageBuilder, keepwatch.Page, *keepwatch.Failure) {
	if s.listTimeout > 0 {
		timeout := fmt.Errorf("no complete page within %v", s.listTimeout)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.listTimeout, timeout)
		defer cancel()
	}
	x, failure := s.get(ctx, "list", accept, query)
	if failure != nil {
		return nil, keepwatch.Page{}, failure
	}
	defer x.body.close()
	l := newPageBuilder(x, m)
	page, err := l.page()
	if err != nil {
		return nil, keepwatch.Page{}, s.unversionedOr(x.contentFailure(err))
	}
	return l, page, nil
}

// checkVersioned returns a failure if a page has objects, but the source has never read one
// with a revision.
func (s *Source) checkVersioned(page keepwatch.Page) *keepwatch.Failure {
	if len(page.Objects) > 0 {
		s.versioned.Store(true)
	}
	for _, skipped := range page.Skipped {
		if failure := s.unversionedOr(skipped); failure.Kind == keepwatch.Unversioned {
			return failure
		}
	}
	return nil
}

// unversionedOr returns failure, or the one of a server without revisions if failure is that of
// a list or an object without one, and the source has never read an object with one.
func (s *Source) unversionedOr(failure *keepwatch.Failure) *keepwatch.Failure {
	if !as[unversioned](failure) || s.versioned.Load() {
		return failure
	}
	return keepwatch.Failed(keepwatch.Unversioned,
		"%w: the server gives %s no revisions, so their changes have no order and cannot be streamed; informers can read them", failure, s.name)
}

func (s *Source) listQuery(req keepwatch.ListRequest) url.Values {
	q := maps.Clone(s.baseQuery)
	if s.pageSize > 0 && !req.Whole {
		q.Set("limit", strconv.FormatInt(s.pageSize, 10))
	}
	switch {
	case req.Continue != "":
		q.Set("continue", req.Continue)
	case req.NotOlderThan > 0:
		q.Set("resourceVersion", req.NotOlderThan.String())
		q.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	}
	return q
}
