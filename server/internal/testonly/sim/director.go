package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Mix is how a director draws its decisions.
type Mix struct {
	Seed uint64
	// Rate is the probability of a fault at a point in percent. Writes and setup have their
	// own.
	Rate int
	// Swarm excludes a random half of the faults from the whole schedule, so that the others
	// coincide more often.
	Swarm bool
	// Only excludes all other faults.
	Only []string
}

// Director takes all decisions of a schedule, by drawing or from a script, and records them.
// Each actor has a random stream of its own, so that its draws do not depend on the order of
// the actors.
type Director struct {
	mu        sync.Mutex
	mix       *Mix
	script    map[decisionKey]Decision
	streams   map[string]*rand.Rand
	faults    map[Point][]Fault   // that can be drawn
	counts    map[decisionKey]int // n is 0 in the keys
	decisions Script
	marked    []Mark
	calm      bool
}

// Draw returns a director that draws its decisions.
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

// Follow returns a director that repeats a script.
func Follow(s Script) *Director {
	d := newDirector()
	for _, x := range s {
		d.script[x.key()] = x
	}
	return d
}

func newDirector() *Director {
	return &Director{script: map[decisionKey]Decision{}, streams: map[string]*rand.Rand{}, counts: map[decisionKey]int{}}
}

// remove excludes faults from the whole schedule. Writes are not excluded.
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

// points are the points with faults, in a fixed order, writes first.
var points = []Point{AtWrite, AtSystem, AtList, AtPage, AtStream, AtNewest, AtOpen, AtFrame, AtBookmark, AtTurn}

// stream returns an actor's random stream.
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

// Decide takes an actor's next decision at a point. A Choice of "" is the default.
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

// Setup decides a parameter of the schedule: a number below n, 0 by default.
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
	at := decisionKey{actor: actor, point: p}
	x := Decision{Actor: actor, Point: p, N: d.counts[at]}
	d.counts[at]++
	if d.calm {
		return x
	}
	if planned, ok := d.script[x.key()]; ok {
		x = planned
	} else if d.mix != nil {
		x.Choice, x.Arg = draw(d.stream(actor))
	}
	if x.Choice != "" {
		d.decisions = append(d.decisions, x)
	}
	return x
}

// weighted selects one of the faults by a number, "" if there are none.
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

// Mark records that faults can be aimed at a decision.
func (d *Director) Mark(x Decision, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.marked = append(d.marked, Mark{x.Actor, x.Point, x.N, time.Now(), why})
}

// Script returns all decisions as a script.
func (d *Director) Script() Script {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.decisions
}

// Marks returns the marks in an order that does not depend on the order of the actors in an
// instant.
func (d *Director) Marks() []Mark {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.SortFunc(d.marked, Mark.compare)
	return d.marked
}
