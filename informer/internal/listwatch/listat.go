package listwatch

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/internal/paging"
)

// ListAt reads the whole state at exactly one revision, and calls emit with the objects, without their
// values, by pages if the client answers with pages. It may be called while the source is in use. It returns a
// *keepwatch.Failure, or emit's error. The failure is Expired if the server no longer has that
// revision.
func (s *Source) ListAt(ctx context.Context, revision keepwatch.Revision, emit func([]keepwatch.Object) error) error {
	if s.token.Load() != nil {
		return keepwatch.Failed(keepwatch.Rejected, "list %s: the server has no revisions, so that there is no state at one",
			s.name)
	}
	options := metav1.ListOptions{
		ResourceVersion: revision.String(), ResourceVersionMatch: metav1.ResourceVersionMatchExact, // no limit; see List
	}
	for progress := (paging.Progress{}); ; {
		list, failure := s.list(ctx, options)
		if failure != nil {
			return failure
		}
		about, objects, failure := s.extract(list)
		if failure != nil {
			return failure
		}
		if got, failure := s.revisionOf(list); failure != nil {
			return failure
		} else if got != revision {
			return keepwatch.Failed(keepwatch.ProtocolViolation, "list %s: the server returned revision %d instead of %d",
				s.name, got, revision)
		}
		withoutValues := make([]keepwatch.Object, 0, len(objects))
		for _, o := range objects {
			parsed, err := parseVersioned(o)
			if err != nil {
				return s.violation(err)
			}
			withoutValues = append(withoutValues, item.New(parsed.Key(), parsed.UID(), parsed.Revision(), nil))
		}
		var err error
		if progress, err = progress.After(paging.PageOf(about.GetContinue(), withoutValues)); err != nil {
			return keepwatch.Failed(keepwatch.ProtocolViolation, "list %s: %w", s.name, err)
		}
		if err := emit(withoutValues); err != nil {
			return err
		}
		if about.GetContinue() == "" {
			return nil
		}
		options = metav1.ListOptions{Continue: about.GetContinue()}
	}
}
