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

// List reads all objects, or a page if the client answers with one: of a consistent read, or of any state that is not
// older than req.NotOlderThan. It asks for no limit. A ListFunc may filter objects, merge the lists of namespaces or
// make a list of its own, and leave out the token for the next page, or return the one of another list. client-go sees
// none of it: it asks for the resourceVersion 0, for which API servers ignore its limit, or for no limit.
func (s *Source) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	options := metav1.ListOptions{Continue: req.Continue}
	if s.versions == nil && req.Continue == "" && req.NotOlderThan > 0 {
		options.ResourceVersion = req.NotOlderThan.String()
		options.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	list, failure := s.list(ctx, options)
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
