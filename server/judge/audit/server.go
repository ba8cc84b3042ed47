package audit

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/paging"
	"github.com/keepwatch/keepwatch/source/kube"
)

// serverSide is the state of a resource on a server.
type serverSide struct {
	config  *rest.Config
	options kube.Options // of the source, without Decode
	own     bool         // whether what the cluster sets itself is left out
	source  *kube.Source
	shown   keepwatch.Revision // of the state that was read last
}

func newServerSide(cfg *rest.Config, o Options, representation kube.Representation) (*serverSide, error) {
	s := &serverSide{config: cfg, own: o.ContentsOnly, options: kube.Options{
		Resource: o.Resource, Namespace: o.Namespace, LabelSelector: o.LabelSelector, FieldSelector: o.FieldSelector,
		Representation: representation, PageSize: o.PageSize,
		DropManagedFields: representation == kube.MetadataOnly, // a stream's state lacks them
	}}
	options := s.options
	options.Decode = digestOf(s.own)
	var err error
	s.source, err = kube.New(cfg, options)
	return s, err
}

func (s *serverSide) String() string { return s.config.Host }

// newest returns the newest revision.
func (s *serverSide) newest(ctx context.Context) (keepwatch.Revision, error) {
	revision, err := attempt(ctx, s.source.Newest)
	return revision, s.describe(err)
}

// describe adds the server's name to an error.
func (s *serverSide) describe(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", s, err)
}

func (s *serverSide) read(ctx context.Context, revision keepwatch.Revision, emit func(part) error) error {
	s.shown = revision
	var progress paging.Progress
	for token := ""; ; {
		page, err := attempt(ctx, func(ctx context.Context) (keepwatch.Page, error) {
			if revision == 0 {
				return s.source.List(ctx, keepwatch.ListRequest{Continue: token})
			}
			return s.source.PageAt(ctx, revision, token)
		})
		switch {
		case err != nil:
			return s.describe(err)
		case s.shown == 0:
			s.shown = page.Revision
		case s.shown != page.Revision:
			return fmt.Errorf("%s continues a list at revision %v with a page at %v", s, s.shown, page.Revision)
		}
		if progress, err = progress.After(paging.PageOf(page.Continue, page.Objects)); err != nil {
			return s.describe(err)
		}
		if err := emit(partOf(page)); err != nil || page.Continue == "" {
			return err
		}
		token = page.Continue
	}
}

func partOf(page keepwatch.Page) part {
	p := part{objects: make([]*object, 0, len(page.Objects))}
	for _, o := range page.Objects {
		p.objects = append(p.objects, o.(*object))
	}
	for _, failure := range page.Skipped {
		p.unreadable = append(p.unreadable, failure)
	}
	return p
}

// whole is an object with its content.
type whole struct {
	object
	content content
}

func (s *serverSide) content(ctx context.Context, key keepwatch.Key) (content, error) {
	options := s.options
	options.Namespace, options.LabelSelector = key.Namespace, ""
	options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name).String()
	options.Decode = func(raw kube.Raw) (keepwatch.Object, error) {
		c, err := parseContent(raw.Body, s.own)
		return &whole{object{key: raw.Key, uid: raw.UID, revision: raw.Revision}, c}, err
	}
	source, err := kube.New(s.config, options)
	if err != nil {
		return nil, err
	}
	page, err := attempt(ctx, func(ctx context.Context) (keepwatch.Page, error) { return source.PageAt(ctx, s.shown, "") })
	if err != nil {
		return nil, s.describe(err)
	}
	for _, o := range page.Objects {
		if o.Key() == key {
			return o.(*whole).content, nil
		}
	}
	return nil, nil
}

// sameCluster returns an error if two servers are known to belong to different clusters: a cluster is
// identified by the UID of its namespace kube-system.
func sameCluster(ctx context.Context, server, against *rest.Config) error {
	first, err := clusterOf(ctx, server)
	if err != nil {
		return err
	}
	second, err := clusterOf(ctx, against)
	if err != nil || first == "" || second == "" || first == second {
		return err
	}
	return fmt.Errorf(
		"%s and %s are %w (their namespaces kube-system have the UIDs %s and %s), whose revisions cannot be compared, only the contents of their objects",
		server.Host, against.Host, ErrDifferentClusters, first, second)
}

// clusterOf returns the UID of the namespace kube-system, empty if it cannot be read or does not exist.
func clusterOf(ctx context.Context, cfg *rest.Config) (keepwatch.UID, error) {
	source, err := kube.New(cfg, kube.Options{
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Representation: kube.MetadataOnly,
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, metav1.NamespaceSystem).String(),
	})
	if err != nil {
		return "", err
	}
	page, err := attempt(ctx, func(ctx context.Context) (keepwatch.Page, error) {
		return source.List(ctx, keepwatch.ListRequest{})
	})
	switch {
	case failed(err, keepwatch.Forbidden, keepwatch.Absent, keepwatch.Rejected):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("%s: %w", cfg.Host, err)
	case len(page.Objects) == 0:
		return "", nil
	}
	return page.Objects[0].UID(), nil
}
