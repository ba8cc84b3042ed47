package watchcache

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// List lists the objects at a key or below it, encoded. It fails if the cache is not ready, with
// ErrNotCached if only the source can answer, and with the API's errors.
func (c *Cache) List(ctx context.Context, key string, options apistorage.ListOptions) (*ListResult, error) {
	if err := c.ReadinessCheck(); err != nil {
		return nil, err
	}
	r, err := c.ListRequest(ctx, key, options)
	if err != nil {
		return nil, err
	}
	result, err := c.answer(ctx, r)
	if r.Consistent() && (err == nil || apistorage.IsUnreachable(err)) {
		c.meter.consistent(err) // another reader answers and counts the rest
	}
	return result, err
}

// ListDecoded lists what r asks for, with the objects as Go values, which are the caller's. It
// fails as List does. A consistent read that fails with ErrNotCached or "Too large resource
// version" is for the source, and not counted here.
func (c *Cache) ListDecoded(ctx context.Context, r ListRequest) (*ListResult, []runtime.Object, error) {
	result, err := c.answer(ctx, r)
	var objects []runtime.Object
	if err == nil {
		objects, err = result.decoded(c)
	}
	if r.Consistent() && !errors.Is(err, ErrNotCached) && !apistorage.IsTooLargeResourceVersion(err) {
		c.meter.consistent(err)
	}
	return result, objects, err
}

// answer goes from the request by the state to the result.
func (c *Cache) answer(ctx context.Context, r ListRequest) (*ListResult, error) {
	snapshot, err := c.state(ctx, r)
	if err != nil {
		return nil, err
	}
	return c.result(r, snapshot)
}
