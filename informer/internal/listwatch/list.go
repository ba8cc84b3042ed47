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

// List reads one page, as source/kube does: a consistent read, or one of any state
// not older than is asked for.
func (s *Source) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	options := metav1.ListOptions{Limit: pageSize, Continue: req.Continue}
	if s.ledger == nil && req.Continue == "" && req.NotOlderThan > 0 {
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
	s.given = max(s.given, page.Revision)
	return page, nil
}

// page makes a page of an answer.
func (s *Source) page(list runtime.Object, req keepwatch.ListRequest) (keepwatch.Page, error) {
	about, objects, failure := s.extract(list)
	if failure != nil {
		return keepwatch.Page{}, failure
	}
	page := keepwatch.Page{Continue: about.GetContinue()}
	if remaining := about.GetRemainingItemCount(); remaining != nil {
		page.Remaining = max(0, *remaining)
	}
	if s.ledger == nil && req.Continue == "" && !numbered(about.GetResourceVersion(), objects) {
		s.keepLedger()
	}
	if s.ledger != nil {
		page.Revision, page.Objects = s.ledger.list(req.Continue == "", about, objects)
		s.publish()
		return page, nil
	}
	revision, failure := s.revisionOf(list)
	if failure != nil {
		return keepwatch.Page{}, failure
	}
	page.Revision = revision
	page.Objects = make([]keepwatch.Object, 0, len(objects))
	for _, o := range objects {
		made, err := strict(o)
		if err != nil {
			return keepwatch.Page{}, keepwatch.Failed(keepwatch.ProtocolViolation, "list %s: %w", s.name, err)
		}
		page.Objects = append(page.Objects, made)
	}
	s.proven = s.proven || len(objects) > 0
	return page, nil
}

// extract takes a list apart. The objects share no memory with each other, so that
// one that stays does not hold all the others.
func (s *Source) extract(list runtime.Object) (metav1.ListInterface, []runtime.Object, *keepwatch.Failure) {
	if u, ok := list.(*unstructured.UnstructuredList); ok && u.GetKind() == "Table" {
		return nil, nil, keepwatch.Failed(keepwatch.Rejected, "list %s: the client asks for tables, which hold no objects", s.name)
	}
	about, err := meta.ListAccessor(list)
	if err == nil {
		var objects []runtime.Object
		if objects, err = meta.ExtractListWithAlloc(list); err == nil {
			return about, objects, nil
		}
	}
	return nil, nil, keepwatch.Failed(keepwatch.Undecodable, "list %s: %T is no list of objects: %w", s.name, list, err)
}

// revisionOf is the revision of a list.
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

// numbered reports whether a list is one of a server that numbers: each object has
// a UID and a revision, and the list one that none is ahead of.
func numbered(list string, objects []runtime.Object) bool {
	at, err := keepwatch.ParseRevision(list)
	if err != nil {
		return false
	}
	for _, o := range objects {
		made, err := strict(o)
		if err != nil || made.Revision() > at {
			return false
		}
	}
	return true
}

// strict makes an item of an object of a server that numbers.
func strict(o runtime.Object) (*item.Item, error) {
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
