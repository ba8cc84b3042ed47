package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Mix says how a director draws.
type Mix struct {
	Seed uint64
	// Rate is how likely a fault is at a point, in percent; writes and setup have
	// their own.
	Rate int
	// Swarm takes a random half of the faults away for the whole schedule, so that
	// those that are left meet each other more often.
	Swarm bool
	// Only leaves out all faults but these.
	Only []string
}

// Director takes all decisions of a schedule, by drawing or from a script, and
// records them. Each actor has a random stream of its own: what one draws does
// not depend on when the others come.
type Director struct {
	mu      sync.Mutex
	mix     *Mix
	script  map[place]Decision
	streams map[string]*rand.Rand
	faults  map[Point][]Fault // that can be drawn
	counts  map[place]int     // n is 0
	taken   Script
	marked  []Mark
	calm    bool
}

// Draw makes a director that draws.
func Draw(mix Mix) *Director {
	d := newDirector()
	d.mix, d.faults = &mix, Faults
	switch {
	case len(mix.Only) > 0:
		d.remove(func(name string) bool { return !slices.Contains(mix.Only, name) })
	case mix.Swarm:
		random := d.stream("swarm")
		d.remove(func(string) bool { return random.IntN(2) == 0 })
	}
	return d
}

// Follow makes a director that repeats a script.
func Follow(s Script) *Director {
	d := newDirector()
	for _, x := range s {
		d.script[x.place()] = x
	}
	return d
}

func newDirector() *Director {
	return &Director{script: map[place]Decision{}, streams: map[string]*rand.Rand{}, counts: map[place]int{}}
}

// remove leaves out faults for the whole schedule; writes go on.
func (d *Director) remove(unwanted func(name string) bool) {
	d.faults = map[Point][]Fault{AtWrite: Faults[AtWrite]}
	for _, p := range points[1:] {
		for _, f := range Faults[p] {
			if !unwanted(f.Name) {
				d.faults[p] = append(d.faults[p], f)
			}
		}
	}
}

// points are those with faults, in an order that does not change, writes first.
var points = []Point{AtWrite, AtSystem, AtList, AtPage, AtStream, AtNewest, AtOpen, AtFrame, AtBookmark, AtTurn}

// stream is an actor's random stream.
func (d *Director) stream(actor string) *rand.Rand {
	r := d.streams[actor]
	if r == nil {
		h := fnv.New64a()
		h.Write([]byte(actor))
		r = rand.New(rand.NewPCG(d.mix.Seed, h.Sum64()))
		d.streams[actor] = r
	}
	return r
}

// Decide takes an actor's next decision at a point. A Choice of "" is the usual.
func (d *Director) Decide(actor string, p Point) Decision {
	return d.decide(actor, p, func(r *rand.Rand) (string, uint8) {
		rate := d.mix.Rate
		if p == AtWrite {
			rate = 90
		}
		hit, pick, arg := r.IntN(100) < rate, r.IntN(1<<20), uint8(r.IntN(256))
		if !hit {
			return "", 0
		}
		return weighted(d.faults[p], pick), arg
	})
}

// Setup decides a parameter of the schedule: a number below n, 0 for nothing.
func (d *Director) Setup(name string, n int) int {
	x := d.decide("setup/"+name, AtSetup, func(r *rand.Rand) (string, uint8) {
		if v := r.IntN(n); v > 0 {
			return "set", uint8(v)
		}
		return "", 0
	})
	return int(x.Arg) % n
}

func (d *Director) decide(actor string, p Point, draw func(*rand.Rand) (string, uint8)) Decision {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := place{actor: actor, point: p}
	x := Decision{Actor: actor, Point: p, N: d.counts[at]}
	d.counts[at]++
	if d.calm {
		return x
	}
	if planned, ok := d.script[x.place()]; ok {
		x = planned
	} else if d.mix != nil {
		x.Choice, x.Arg = draw(d.stream(actor))
	}
	if x.Choice != "" {
		d.taken = append(d.taken, x)
	}
	return x
}

// weighted chooses one of the faults by a number, "" if there are none.
func weighted(faults []Fault, at int) string {
	total := 0
	for _, f := range faults {
		total += f.Weight
	}
	if total == 0 {
		return ""
	}
	at %= total
	for _, f := range faults {
		if at -= f.Weight; at < 0 {
			return f.Name
		}
	}
	panic("sim: weights don't add up")
}

// Calm ends all faults and writes.
func (d *Director) Calm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calm = true
}

// Mark remembers that a decision is worth aiming at.
func (d *Director) Mark(x Decision, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.marked = append(d.marked, Mark{x.Actor, x.Point, x.N, time.Now(), why})
}

// Taken is everything that was decided, as a script, and Marks what was worth
// aiming at, in an order that does not depend on who was first in an instant.
func (d *Director) Taken() Script {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken
}

func (d *Director) Marks() []Mark {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.SortFunc(d.marked, Mark.compare)
	return d.marked
}
