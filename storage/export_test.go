package storage

import "time"

// WarmAfter sets how long behind the start the storage decodes what it has read by then.
func (s *Storage) WarmAfter(d time.Duration) { s.warmAfter = d }
