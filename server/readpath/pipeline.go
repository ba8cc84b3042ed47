package readpath

import (
	"iter"
	"runtime"
	"sync"
)

// pipeline encodes the parts of a response on all cores, while the parts before them are sent.
type pipeline[P, V any] struct {
	slots chan struct{} // bounds how many parts are encoded at the same time, in all responses
	// size returns how many bytes the encoding of a part occupies until it is sent.
	size func(P) int64
	// cached returns the encoding of a part if no object of it has to be encoded. encode returns it
	// otherwise; any goroutine calls it.
	cached func(P) (V, bool)
	encode func(P) (V, error)
}

const (
	// maxPendingBytes bounds what of a response is encoded and not sent yet, except for one part.
	maxPendingBytes = chunkSize / 2
	// partsPerCore is how many parts of a response are pending for each core.
	partsPerCore = 2
)

var (
	maxPending = partsPerCore * runtime.GOMAXPROCS(0)
	// bytesPerPart is about how large parts are that may end at any object.
	bytesPerPart = int64(maxPendingBytes / maxPending)
)

// newEncoderSlots returns one slot for each core.
func newEncoderSlots() chan struct{} { return make(chan struct{}, runtime.GOMAXPROCS(0)) }

// pendingPart is a part that is being encoded.
type pendingPart[V any] struct {
	size     int64
	done     chan struct{} // nil if the part was cached
	value    V
	err      error
	panicked any
}

// run iterates over the encodings of parts, in order, up to the first error. If encode panics, so does
// run. When run returns, encode is not running.
func (p pipeline[P, V]) run(parts iter.Seq[P]) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		next, stop := iter.Pull(parts)
		defer stop()
		var working sync.WaitGroup
		defer working.Wait()
		var pending []*pendingPart[V] // in order
		var size int64                // of pending
		part, more := next()
		for more || len(pending) > 0 {
			for more && (len(pending) == 0 || len(pending) < maxPending && size < maxPendingBytes) {
				started := p.start(part, &working)
				pending, size = append(pending, started), size+started.size
				part, more = next()
			}
			first := pending[0]
			pending[0] = nil // the array remains for a while
			pending, size = pending[1:], size-first.size
			if first.done != nil {
				<-first.done
			}
			if first.panicked != nil {
				panic(first.panicked)
			}
			if !yield(first.value, first.err) || first.err != nil {
				return
			}
		}
	}
}

// start begins to encode a part, unless it is cached.
func (p pipeline[P, V]) start(part P, working *sync.WaitGroup) *pendingPart[V] {
	if value, ok := p.cached(part); ok {
		return &pendingPart[V]{value: value}
	}
	started := &pendingPart[V]{size: p.size(part), done: make(chan struct{})}
	working.Go(func() {
		defer close(started.done)
		p.slots <- struct{}{}
		defer func() { <-p.slots }()
		defer func() { started.panicked = recover() }()
		started.value, started.err = p.encode(part)
	})
	return started
}
