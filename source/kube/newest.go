package kube

import (
	"context"
	"maps"

	"github.com/keepwatch/keepwatch"
)

// Newest asks for the newest revision: a consistent list of one object, of which
// only the metadata is sent. A namespace and selectors do not matter, since every
// list shows the revision of the whole storage.
func (s *Source) Newest(ctx context.Context) (keepwatch.Revision, error) {
	q := maps.Clone(s.base)
	q.Del("includeObject")
	q.Set("limit", "1")
	x, failure := s.get(ctx, "list", listAccept[MetadataOnly], q)
	if failure != nil {
		return 0, failure
	}
	defer x.body.close()
	l := newLister(x)
	if err := l.read(); err != nil {
		return 0, x.unfit(err)
	}
	page, err := l.page()
	if err != nil {
		return 0, x.unfit(err)
	}
	return page.Revision, nil
}
