package history

import (
	"sync"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// Origin tells the rows that a reader has found first from those of tables that were emptied since, and filled anew:
// revisions and gaps of others may be the same. It is safe for concurrent use.
type Origin struct {
	mu    sync.Mutex
	first string
}

// Check returns a [sink.Unavailable] if first, which describes the first row of types, is another one than that of an
// earlier call, or none. That row is neither changed nor deleted ever.
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
