package watchcache

import (
	"context"
	"time"
)

// WarmAfter sets the time from the start to the decoding of what was read until then.
func (c *Cache) WarmAfter(d time.Duration) { c.warmAfter = d }

// DecodeAll decodes all objects, as the cache does after the start.
func (c *Cache) DecodeAll(ctx context.Context) bool { return c.decodeAll(ctx) }
