package storage

import (
	"context"
	"time"

	"github.com/keepwatch/keepwatch"
)

// WarmAfter sets how long behind the start the storage decodes what it has read by then.
func (s *Storage) WarmAfter(d time.Duration) { s.warmAfter = d }

// Break makes the next change that etcd sends break an invariant: history without a list.
func (s *Storage) Break() error { return s.store.Void(context.Background(), keepwatch.GapRewind) }
