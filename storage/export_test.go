package storage

import (
	"context"
	"time"

	"github.com/keepwatch/keepwatch"
)

// WarmAfter sets how long behind the start the storage decodes what it has read by then.
func (s *Storage) WarmAfter(d time.Duration) { s.warmAfter = d }

// OpenAll decodes what the storage has read by now, as it does behind the start.
func (s *Storage) OpenAll(ctx context.Context) bool { return s.openAll(ctx) }

// Break makes the next change that etcd sends break an invariant: history without a list.
func (s *Storage) Break() error { return s.store.Void(context.Background(), keepwatch.GapRewind) }
