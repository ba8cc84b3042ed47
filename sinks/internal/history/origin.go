package history

import (
	"sync"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// Origin identifies the rows that a reader opened by the first row of types. It detects tables that were truncated and
// filled again: their revisions and gaps may equal those of before. It is safe for concurrent use.
type Origin struct {
	mu    sync.Mutex
	first string
}

// Check returns a [sink.Unavailable] if first, which describes the first row of types, differs from that of the first
// call that found one. No sink changes or deletes that row.
func (o *Origin) Check(first string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.first == "" {
		o.first = first
	}
	if first != o.first {
		return sink.Unavailablef("the tables were emptied since this process opened them: start the process again")
	}
	return nil
}
