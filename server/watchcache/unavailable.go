package watchcache

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
)

// RequestError is an error of [Cache.Watch] that answers the request. All others are the only
// event of a watch that begins.
type RequestError struct{ Err error }

// Error returns the text of Err.
func (e RequestError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e RequestError) Unwrap() error { return e.Err }

// unavailable reports whether an error says that the source does not answer.
func unavailable(err error) bool {
	failure := (*keepwatch.Failure)(nil)
	return errors.As(err, &failure) && failure.Kind == keepwatch.Unreachable
}

// readError returns the API's error for a read that failed. While the source is unavailable that
// is the library's "unreachable", which an API server answers with ServerTimeout and Retry-After:
// clients ask again. The failure itself would be 500 without either.
func (c *Cache) readError(err error) error {
	if unavailable(err) {
		return apistorage.NewUnreachableError(c.config.SourcePrefix, 0)
	}
	return err
}

// watchError returns the API's error for a watch that can't begin. While the source is unavailable
// that is 429, as from a watch cache that has lost etcd: client-go then asks for the same watch
// again, whereas after any other error it lists. If another cluster answers in place of the one
// that the cache follows, the revision belongs to a history that is gone.
func (c *Cache) watchError(err error) error {
	if failure := (*keepwatch.Failure)(nil); errors.As(err, &failure) && failure.Kind == keepwatch.Rewound {
		return apierrors.NewResourceExpired("too old resource version: " + c.config.SourceName + "'s history was replaced")
	}
	if unavailable(err) || apistorage.IsUnreachable(err) {
		return RequestError{apierrors.NewTooManyRequests(c.config.SourceName+" does not answer", retryAfter)}
	}
	return err
}
