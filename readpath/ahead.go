package readpath

import (
	"iter"
	"runtime"
	"sync"
)

// ahead makes the parts of an answer on all cores, while those before them are being sent.
type ahead[P, V any] struct {
	encoders chan struct{} // room for those that work at a time, for all answers
	// weigh is how many bytes what is made of a part holds until it is sent.
	weigh func(P) int64
	// ready returns what need not be made, and make is called from any goroutine for the rest.
	ready func(P) (V, bool)
	make  func(P) (V, error)
}

const (
	// aheadBytes bounds what is made and not sent yet of an answer, but for one part.
	aheadBytes = chunk / 2
	// perEncoder is how many parts there are under way for each core.
	perEncoder = 2
)

var (
	window = perEncoder * runtime.GOMAXPROCS(0)
	// runBytes is about how long parts are that may be cut anywhere.
	runBytes = int64(aheadBytes / window)
)

// newEncoders makes room for one on each core.
func newEncoders() chan struct{} { return make(chan struct{}, runtime.GOMAXPROCS(0)) }

// made is a part that will be there.
type made[V any] struct {
	weight   int64
	done     chan struct{} // nil if it was ready
	value    V
	err      error
	panicked any
}

// all iterates over what is made of parts, in their order, up to the first error. If make panics,
// so does all. Nothing is made any more when it returns.
func (a ahead[P, V]) all(parts iter.Seq[P]) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		next, stop := iter.Pull(parts)
		defer stop()
		var working sync.WaitGroup
		defer working.Wait()
		var under []*made[V] // way, in order
		var weight int64     // of what is
		part, more := next()
		for more || len(under) > 0 {
			for more && (len(under) == 0 || len(under) < window && weight < aheadBytes) {
				one := a.begin(part, &working)
				under, weight = append(under, one), weight+one.weight
				part, more = next()
			}
			one := under[0]
			under[0] = nil // the array behind it stays for a while
			under, weight = under[1:], weight-one.weight
			if one.done != nil {
				<-one.done
			}
			if one.panicked != nil {
				panic(one.panicked)
			}
			if !yield(one.value, one.err) || one.err != nil {
				return
			}
		}
	}
}

func (a ahead[P, V]) begin(part P, working *sync.WaitGroup) *made[V] {
	if value, ready := a.ready(part); ready {
		return &made[V]{value: value}
	}
	one := &made[V]{weight: a.weigh(part), done: make(chan struct{})}
	working.Go(func() {
		defer close(one.done)
		a.encoders <- struct{}{}
		defer func() { <-a.encoders }()
		defer func() { one.panicked = recover() }()
		one.value, one.err = a.make(part)
	})
	return one
}
