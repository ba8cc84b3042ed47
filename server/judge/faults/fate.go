package faults

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
)

// Fate draws a request's fault from r. The fault depends on the seed, the request's class
// and resource, and its number among those, and not on how requests of several kinds
// interleave.
type Fate func(r *rand.Rand, req Request) Fault

// draw is fate's decision for req.
func (fate Fate) draw(seed uint64, req Request) Fault {
	if fate == nil {
		return None
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s/%d", req.Class, req.Resource, req.Number)
	return fate(rand.New(rand.NewPCG(seed, h.Sum64())), req)
}

// OneOf is a fate that has a share of the requests, 0 to 1, meet one of the
// faults for their class, each equally likely, anywhere in the first bytes of
// the answer.
func OneOf(share float64, bytes int64, faults map[Class][]Fault) Fate {
	return func(r *rand.Rand, req Request) Fault {
		choice := faults[req.Class]
		if len(choice) == 0 || r.Float64() >= share {
			return None
		}
		return choice[r.IntN(len(choice))].After(r.Int64N(bytes + 1))
	}
}

// Storm is every fault that a follower notices at once, for OneOf. It has no
// Stall and no HalfOpen: those cost a follower its idle deadline each time.
func Storm() map[Class][]Fault {
	refused := []Fault{
		Answer(TooManyRequests), Answer(InternalError), Answer(Unavailable), Answer(Timeout),
	}
	broken := []Fault{Cut, Tear, Reset}
	expired := []Fault{Answer(Expired), Answer(Gone)}
	inStream := []Fault{
		Event(Expired), Event(Gone), Event(InternalError), Event(Unavailable), Event(Timeout),
		End, Garbage, Repeat,
	}
	return map[Class][]Fault{
		List:       slices.Concat(refused, broken),
		Newest:     slices.Concat(refused, broken),
		ListPage:   slices.Concat(refused, broken, expired),
		StreamList: slices.Concat(refused, broken, expired, inStream),
		Watch:      slices.Concat(refused, broken, expired, inStream),
	}
}
