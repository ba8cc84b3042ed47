package history

import (
	"sync"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// GapsState tells states of the table gaps apart. A gap is added with the greatest id, and is extended or ended.
type GapsState struct {
	Count, Last, Ended int64
	From, To           int64 // the sums of the revisions
}

// QueryGapsState selects the columns of a [GapsState], but Last.
const QueryGapsState = `count(*), count(ended), coalesce(sum(from_revision), 0), coalesce(sum(to_revision), 0)`

// Gaps are the gaps of a database as they were read last: a history that is thinned out has thousands. It is safe for
// concurrent use.
type Gaps struct {
	mu    sync.Mutex
	state GapsState
	read  bool
	all   []sink.StoredGap
}

// Get returns the gaps in a state, and calls read for those of another one than the last.
func (g *Gaps) Get(state GapsState, read func() ([]sink.StoredGap, error)) ([]sink.StoredGap, error) {
	g.mu.Lock()
	if g.read && g.state == state {
		defer g.mu.Unlock()
		return g.all, nil
	}
	g.mu.Unlock()
	all, err := read()
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state, g.read, g.all = state, true, all
	return all, nil
}
