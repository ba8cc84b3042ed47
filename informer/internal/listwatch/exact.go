package listwatch

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
)

// ListAt reads the whole state at exactly one revision, page by page, and calls
// emit with what identifies its objects, without their values. It may be called
// while the source is in use. Errors are *keepwatch.Failure, or emit's: Expired
// where the server does not have that revision any more.
func (s *Source) ListAt(ctx context.Context, revision keepwatch.Revision, emit func([]keepwatch.Object) error) error {
	if s.token.Load() != nil {
		return keepwatch.Failed(keepwatch.Rejected, "list %s: the server does not number, so that there is no state at a revision", s.name)
	}
	options := metav1.ListOptions{
		Limit: pageSize, ResourceVersion: revision.String(), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	}
	for {
		list, failure := s.list(ctx, options)
		if failure != nil {
			return failure
		}
		about, objects, failure := s.extract(list)
		if failure != nil {
			return failure
		}
		if at, failure := s.revisionOf(list); failure != nil {
			return failure
		} else if at != revision {
			return keepwatch.Failed(keepwatch.ProtocolViolation, "list %s: the server shows revision %d when asked for %d", s.name, at, revision)
		}
		bare := make([]keepwatch.Object, 0, len(objects))
		for _, o := range objects {
			made, err := strict(o)
			if err != nil {
				return s.violation(err)
			}
			bare = append(bare, item.New(made.Key(), made.UID(), made.Revision(), nil))
		}
		if err := emit(bare); err != nil {
			return err
		}
		if about.GetContinue() == "" {
			return nil
		}
		options = metav1.ListOptions{Limit: pageSize, Continue: about.GetContinue()}
	}
}
