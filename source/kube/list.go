package kube

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
)

// listAccept are the Accept headers of lists in JSON, by Form.
var listAccept = [...]string{
	WholeObjects: "application/json",
	TableRows:    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
	MetadataOnly: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
}

// List reads one page. The request asks for a consistent read, or, where
// NotOlderThan is given, for any state of at least that revision, which a
// server can answer from its cache. A continue token pins the state.
//
// A page that has no revision is a ProtocolViolation, a first page of a lower
// revision than was asked for comes from a StaleReplica. Withheld are objects
// without a name or a revision (ProtocolViolation) and those that are longer than
// MaxObject or that Decode rejects (Undecodable). A single string in JSON that is
// longer makes the page fail: to find its end would take holding it.
func (s *Source) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	l, page, failure := s.page(ctx, s.accept(listAccept), s.listQuery(req), s.maker)
	if failure != nil {
		return keepwatch.Page{}, failure
	}
	if req.Continue == "" && page.Revision < req.NotOlderThan {
		return keepwatch.Page{}, keepwatch.Failed(keepwatch.StaleReplica,
			"list %s: the server showed revision %v when asked for %v or later", s.name, page.Revision, req.NotOlderThan)
	}
	s.remember(l.columns)
	return page, nil
}

// Newest is the revision of a consistent list that is as small as can be: one
// object's metadata. The selectors stay, since the right to list may depend on
// them.
func (s *Source) Newest(ctx context.Context) (keepwatch.Revision, error) {
	q := maps.Clone(s.base)
	q.Set("limit", "1")
	_, page, failure := s.page(ctx, listAccept[MetadataOnly], q, maker{})
	if failure != nil {
		return 0, failure
	}
	return page.Revision, nil
}

// ListAt reads the whole state at exactly one revision, page by page, and calls emit
// with the objects of each: only their metadata, whatever the source's form is. It
// may be called while the source is in use. Errors are *keepwatch.Failure, Expired
// where the server does not have that revision any more; or emit's.
func (s *Source) ListAt(ctx context.Context, revision keepwatch.Revision, emit func([]keepwatch.Object) error) error {
	q := s.listQuery(keepwatch.ListRequest{})
	q.Set("resourceVersion", revision.String())
	q.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	for {
		_, page, failure := s.page(ctx, listAccept[MetadataOnly], q, maker{})
		switch {
		case failure != nil:
			return failure
		case page.Revision != revision:
			return keepwatch.Failed(keepwatch.ProtocolViolation,
				"list %s: the server showed revision %v when asked for exactly %v", s.name, page.Revision, revision)
		}
		if err := emit(page.Objects); err != nil || page.Continue == "" {
			return err
		}
		q = s.listQuery(keepwatch.ListRequest{Continue: page.Continue})
	}
}

// page asks for a list and reads it.
func (s *Source) page(ctx context.Context, accept string, query url.Values, m maker) (*lister, keepwatch.Page, *keepwatch.Failure) {
	if s.listTimeout > 0 {
		late := fmt.Errorf("no complete page within %v", s.listTimeout)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.listTimeout, late)
		defer cancel()
	}
	x, failure := s.get(ctx, "list", accept, query)
	if failure != nil {
		return nil, keepwatch.Page{}, failure
	}
	defer x.body.close()
	l := newLister(x, m)
	page, err := l.page()
	if err != nil {
		return nil, keepwatch.Page{}, x.unfit(err)
	}
	return l, page, nil
}

func (s *Source) listQuery(req keepwatch.ListRequest) url.Values {
	q := maps.Clone(s.base)
	if s.pageSize > 0 {
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

// lister makes a page of a listing.
type lister struct {
	listing
	read    func() error // reads the listing to its end
	op      string
	maker   maker
	objects []keepwatch.Object
}

func newLister(x *exchange, m maker) *lister {
	l := &lister{op: x.op, maker: m}
	l.visit = l.add
	if x.encoding == Protobuf {
		l.read = newProtobufPage(x, m, &l.listing).read
	} else {
		l.read = (&pageReader{x.cutter(m), &l.listing}).read
	}
	return l
}

func (l *lister) add(d draft, r *row) error {
	if l.kind != "" && l.apiVersion != "" && r == nil {
		l.maker.listed = l.itemType()
	}
	o, err := l.maker.object(d, r)
	if err != nil {
		return err
	}
	l.objects = append(l.objects, o)
	return nil
}

// itemType is what the list's items are: lists of built-in kinds leave it out
// of the items.
func (l *lister) itemType() typeMeta {
	return typeMeta{l.apiVersion, strings.TrimSuffix(l.kind, "List")}
}

// page reads the list to its end. What came behind the items is given to them
// then.
func (l *lister) page() (keepwatch.Page, error) {
	if err := l.read(); err != nil {
		return keepwatch.Page{}, err
	}
	revision, err := keepwatch.ParseRevision(l.revision)
	if err != nil {
		return keepwatch.Page{}, violation{fmt.Errorf("the list's %w", err)}
	}
	l.maker.listed = l.itemType()
	for _, o := range l.objects {
		o, ok := o.(*Object)
		if !ok {
			break // decoded by another, each of them
		}
		if o.row != nil {
			o.row.columns = l.columns
		} else {
			l.maker.complete(o)
		}
	}
	return keepwatch.Page{
		Revision: revision, Objects: l.objects, Skipped: l.leftOut(), Continue: l.next, Remaining: l.remaining,
	}, nil
}

// leftOut makes failures of why objects were withheld.
func (l *lister) leftOut() []*keepwatch.Failure {
	var all []*keepwatch.Failure
	for _, err := range l.withheld {
		kind := keepwatch.Undecodable
		if as[violation](err) {
			kind = keepwatch.ProtocolViolation
		}
		all = append(all, keepwatch.Failed(kind, "%s: %w", l.op, err))
	}
	return all
}

// remember keeps the columns that the server sent, if it did.
func (s *Source) remember(columns []metav1.TableColumnDefinition) {
	if len(columns) > 0 {
		s.columns.Store(&columns)
	}
}

// known are the columns last seen.
func (s *Source) known() []metav1.TableColumnDefinition {
	if columns := s.columns.Load(); columns != nil {
		return *columns
	}
	return nil
}
