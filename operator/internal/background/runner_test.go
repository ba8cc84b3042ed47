package background

import (
	"errors"
	"testing"
	"time"
)

// The stop of a run that has just ended reports nothing later.
func TestStopAfterTheEnd(t *testing.T) {
	s := NewRunner(t.Context(), nil, nil).NewSet(nil, nil)
	r := &run{Task: &Task{Schedule: Schedule{Grace: time.Hour}}, set: s, stopping: make(chan struct{})}
	s.ended(r, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.stop(errors.New("stopped"))
	if len(r.timers) > 0 {
		t.Error("a run that has ended is waited for")
	}
}
