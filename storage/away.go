package storage

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
)

// away reports whether an error is that etcd does not answer: it can't be reached, has
// no leader, or takes too long.
func away(err error) bool {
	if failure := (*keepwatch.Failure)(nil); errors.As(err, &failure) {
		return failure.Kind == keepwatch.Unreachable
	}
	code := status.Code(err)
	if own := (interface{ Code() codes.Code })(nil); errors.As(err, &own) { // the client's form of etcd's errors
		code = own.Code()
	}
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// readError words the failure of a read. While etcd is away that is the library's
// "unreachable", which an API server answers with ServerTimeout and Retry-After:
// clients ask again. The error as such would be 500 without either.
func (s *Storage) readError(err error) error {
	if away(err) {
		return apistorage.NewUnreachableError(s.config.root(), 0)
	}
	return err
}

// watchError words why a watch can't begin. While etcd is away that is 429, as from a
// watch cache that has lost etcd: client-go asks for the same watch again, whereas
// after any other error it lists. Where another cluster answers in the place of the one
// that the store follows, the revision is of a history that is gone.
func watchError(err error) error {
	if failure := (*keepwatch.Failure)(nil); errors.As(err, &failure) && failure.Kind == keepwatch.Rewound {
		return apierrors.NewResourceExpired("too old resource version: etcd's history was replaced")
	}
	if away(err) || apistorage.IsUnreachable(err) {
		return requestError{apierrors.NewTooManyRequests("etcd does not answer", retryAfter)}
	}
	return err
}
