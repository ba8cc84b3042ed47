package audit

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/stream"
)

// Options select what is compared. Resource is required; the other fields may be zero.
type Options struct {
	// Resource is the resource, by its plural name. Version is required.
	Resource schema.GroupVersionResource
	// Namespace restricts the comparison to one namespace. Empty means all namespaces, or a
	// cluster-scoped resource.
	Namespace string
	// LabelSelector and FieldSelector are evaluated by the servers.
	LabelSelector, FieldSelector string
	// PageSize bounds the objects of a page. Zero means 500; a negative value means one page.
	PageSize int64
	// ContentsOnly compares servers that do not share revisions; see the package's
	// documentation. It does not apply to State.
	ContentsOnly bool
}

// ErrDifferentClusters means that two servers do not share revisions. They can be compared with
// [Options].ContentsOnly.
var ErrDifferentClusters = errors.New("servers of different clusters")

// maxStarts bounds how often a comparison starts, if its revision expires each time.
const maxStarts = 10

// Servers compares the resource on server with that on against. Objects that only server has
// are missing, those that only against has are extra.
//
// It returns an error if the states could not be compared: the servers belong to different
// clusters, a server refuses a request or fails repeatedly, against does not reach the revision
// of server within about half a minute, or revisions expire faster than they are read. The
// error wraps a *keepwatch.Failure if a request failed. Servers does not change cfgs.
func Servers(ctx context.Context, server, against *rest.Config, o Options) (*Report, error) {
	first, err := newServerSide(server, o, kube.WholeObjects)
	if err != nil {
		return nil, err
	}
	second, err := newServerSide(against, o, kube.WholeObjects)
	if err != nil {
		return nil, err
	}
	if !o.ContentsOnly {
		if err := sameCluster(ctx, server, against); err != nil {
			return nil, err
		}
	}
	choose := func(ctx context.Context) (keepwatch.Revision, error) {
		if o.ContentsOnly {
			return 0, nil
		}
		return first.newest(ctx)
	}
	report, err := compare(ctx, first, second, choose, maxStarts)
	if tooLarge(err) {
		err = fmt.Errorf("%s has not reached a revision that %s has: it lags behind, or they do not share revisions: %w",
			second, first, err)
	}
	return report, err
}

// State compares the resource on server with the index of a stream, at the index's revision. o
// must select what the stream does. Objects that only server has are missing from the index,
// those that only the index has are extra: their deletion was lost.
//
// It returns an error if the states could not be compared: the server refuses a request or
// fails repeatedly, or no longer has the revision. The caller closes the index.
func State(ctx context.Context, server *rest.Config, against *stream.Index, o Options) (*Report, error) {
	o.ContentsOnly = false
	first, err := newServerSide(server, o, kube.MetadataOnly)
	if err != nil {
		return nil, err
	}
	cursor := func(context.Context) (keepwatch.Revision, error) { return against.Revision(), nil }
	report, err := compare(ctx, first, &indexSide{against}, cursor, 1)
	switch {
	case expired(err):
		err = fmt.Errorf("%s no longer has revision %v of the state: run the stream until SYNCED first: %w", first,
			against.Revision(), err)
	case tooLarge(err):
		err = fmt.Errorf("%s has not reached revision %v of the state: it lags behind, or was restored from a backup: %w",
			first, against.Revision(), err)
	}
	return report, err
}

// compare compares two sides at the revision that choose returns. It starts again, at most
// starts times in all, if the revision expires.
func compare(ctx context.Context, server, against side, choose func(context.Context) (keepwatch.Revision, error),
	starts int) (*Report, error) {
	for start := 1; ; start++ {
		revision, err := choose(ctx)
		if err != nil {
			return nil, err
		}
		m := newMerge(revision)
		err = m.run(ctx, server, against)
		switch {
		case err == nil:
			m.report.Restarts = start - 1
			return m.finish(ctx, server, against)
		case !expired(err):
			return nil, err
		case start >= starts && starts > 1:
			return nil, fmt.Errorf(
				"revisions expired %d times while they were read; read less at a time, for example one namespace: %w", starts, err)
		case start >= starts:
			return nil, err
		}
	}
}
