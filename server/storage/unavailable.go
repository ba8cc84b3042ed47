package storage

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// unavailable reports whether an error of etcd3 says that etcd does not answer: it can't be
// reached, has no leader, or takes too long.
func unavailable(err error) bool {
	code := status.Code(err)
	if own := (interface{ Code() codes.Code })(nil); errors.As(err, &own) { // the type of the client's own errors
		code = own.Code()
	}
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// readError returns the library's "unreachable" for a read of etcd3 that failed because etcd is
// unavailable. An API server answers it with ServerTimeout and Retry-After: clients ask again. The
// error itself would be 500 without either.
func (s *Storage) readError(err error) error {
	if unavailable(err) {
		return apistorage.NewUnreachableError(s.config.root(), 0)
	}
	return err
}
