package listwatch

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
)

// List reads one page: of a consistent read, or of any state that is not older than
// req.NotOlderThan.
func (s *Source) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	options := metav1.ListOptions{Limit: s.limit(), Continue: req.Continue}
	if req.Whole {
		options.Limit = 0
	}
	if s.versions == nil && req.Continue == "" && req.NotOlderThan > 0 {
		options.ResourceVersion = req.NotOlderThan.String()
		options.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	list, failure := s.listPage(ctx, options)
	if failure != nil {
		return keepwatch.Page{}, failure
	}
	page, err := s.page(list, req)
	if err != nil {
		return keepwatch.Page{}, err
	}
	s.newest = max(s.newest, page.Revision)
	return page, nil
}

// limit returns the limit of a request for a page.
func (s *Source) limit() int64 {
	if s.whole.Load() {
		return 0
	}
	return pageSize
}

// listPage reads a page, and all without a limit if the first page may hide that there are more.
func (s *Source) listPage(ctx context.Context, options metav1.ListOptions) (runtime.Object, *keepwatch.Failure) {
	list, failure := s.list(ctx, options)
	if failure == nil && options.Limit > 0 && options.Continue == "" && hidesContinue(list) {
		options.Limit = 0
		list, failure = s.list(ctx, options)
		s.whole.Store(failure == nil && meta.LenList(list) > pageSize) // else the page was complete
	}
	return list, failure
}

// hidesContinue reports whether a list that seems to be complete may be a first page: it is full. Clients that merge
// the lists of namespaces, or make a list of their own in another way, often leave the token out: client-go's first
// list asks for the resourceVersion 0, for which API servers ignore the limit.
func hidesContinue(list runtime.Object) bool {
	about, err := meta.ListAccessor(list)
	return err == nil && about.GetContinue() == "" && meta.LenList(list) >= pageSize
}

// page returns the page of a response.
func (s *Source) page(list runtime.Object, req keepwatch.ListRequest) (keepwatch.Page, error) {
	about, objects, failure := s.extract(list)
	if failure != nil {
		return keepwatch.Page{}, failure
	}
	page := keepwatch.Page{Continue: about.GetContinue()}
	if remaining := about.GetRemainingItemCount(); remaining != nil {
		page.Remaining = max(0, *remaining)
	}
	if s.versions == nil && req.Continue == "" && !hasRevisions(about.GetResourceVersion(), objects) {
		s.assignVersions()
	}
	if s.versions != nil {
		page.Revision, page.Objects = s.versions.page(req.Continue == "", about, objects)
		s.publishToken()
		return page, nil
	}
	revision, failure := s.revisionOf(list)
	if failure != nil {
		return keepwatch.Page{}, failure
	}
	page.Revision = revision
	page.Objects = make([]keepwatch.Object, 0, len(objects))
	for _, o := range objects {
		parsed, err := parseVersioned(o)
		if err != nil { // on the first page it would have shown that the server has no revisions
			page.Skipped = append(page.Skipped, keepwatch.Failed(keepwatch.ProtocolViolation, "list %s: %w", s.name, err))
			continue
		}
		page.Objects = append(page.Objects, parsed)
	}
	if len(objects) > 0 {
		s.readFirst(objects[0])
	}
	if page.Continue == "" {
		s.cut = 0
	}
	return page, nil
}

// extract returns the metadata and the objects of a list. The objects share no memory with each
// other, so that one cached object does not retain the others.
func (s *Source) extract(list runtime.Object) (metav1.ListInterface, []runtime.Object, *keepwatch.Failure) {
	if u, ok := list.(*unstructured.UnstructuredList); ok && u.GetKind() == "Table" {
		return nil, nil, keepwatch.Failed(keepwatch.Rejected, "list %s: the client requests tables, which contain no objects",
			s.name)
	}
	about, err := meta.ListAccessor(list)
	if err == nil {
		var objects []runtime.Object
		if objects, err = meta.ExtractListWithAlloc(list); err == nil {
			return about, objects, nil
		}
	}
	return nil, nil, keepwatch.Failed(keepwatch.Undecodable, "list %s: %T is not a list of objects: %w", s.name, list, err)
}

// revisionOf returns the revision of a list.
func (s *Source) revisionOf(list runtime.Object) (keepwatch.Revision, *keepwatch.Failure) {
	about, err := meta.ListAccessor(list)
	if err == nil {
		var revision keepwatch.Revision
		if revision, err = keepwatch.ParseRevision(about.GetResourceVersion()); err == nil {
			return revision, nil
		}
	}
	return 0, keepwatch.Failed(keepwatch.ProtocolViolation, "list %s: %w", s.name, err)
}

// hasRevisions reports whether the server of a list has revisions: the list has one, and each
// object has a UID and a revision that is not above the list's.
func hasRevisions(resourceVersion string, objects []runtime.Object) bool {
	revision, err := keepwatch.ParseRevision(resourceVersion)
	if err != nil {
		return false
	}
	for _, o := range objects {
		parsed, err := parseVersioned(o)
		if err != nil || parsed.Revision() > revision {
			return false
		}
	}
	return true
}

// parseVersioned returns the item of an object. It fails if the object has no UID or no
// revision.
func parseVersioned(o runtime.Object) (*item.Item, error) {
	about, err := meta.Accessor(o)
	if err != nil {
		return nil, err
	}
	revision, err := keepwatch.ParseRevision(about.GetResourceVersion())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyOf(about), err)
	}
	if about.GetUID() == "" {
		return nil, fmt.Errorf("%s has no UID", keyOf(about))
	}
	return item.New(keyOf(about), keepwatch.UID(about.GetUID()), revision, o), nil
}

func keyOf(about metav1.Object) keepwatch.Key {
	return keepwatch.Key{Namespace: about.GetNamespace(), Name: about.GetName()}
}
