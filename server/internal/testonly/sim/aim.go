package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Aim plays a schedule whose faults hit marks. It plays a schedule of writes alone, adds a
// fault at a deletion, a recreation, a relist or a resume, plays the result, and repeats
// that: the effects of one fault are the marks of the next.
func Aim(seed uint64, play func(*Director) Outcome) Outcome {
	const variants = 8 // of one schedule of writes
	random := rand.New(rand.NewPCG(seed, 0xa1))
	o := play(clean(seed / 5 / variants)) // every fifth schedule is aimed
	for range 1 + random.IntN(3) {
		if len(o.Marks) == 0 || len(o.Problems) > 0 {
			break
		}
		m := o.Marks[random.IntN(len(o.Marks))]
		o = play(Follow(append(o.Script, m.faultAt(random))))
	}
	return o
}

func (m Mark) compare(o Mark) int {
	return cmp.Or(m.At.Compare(o.At), cmp.Compare(m.Actor, o.Actor), cmp.Compare(m.Point, o.Point), cmp.Compare(m.N, o.N),
		cmp.Compare(m.Why, o.Why))
}

// clean returns a director whose schedule has writes alone.
func clean(seed uint64) *Director { return Draw(Mix{Seed: seed}) }

// Sweep returns a clean schedule's script with one fault added, for each fault at each mark
// and at the system's next decision after the mark.
func Sweep(o Outcome) []Script {
	var all []Script
	done := map[decisionKey]bool{}
	for _, m := range o.Marks {
		for _, at := range []decisionKey{{m.Actor, m.Point, m.N}, m.nextSystem()} {
			if done[at] {
				continue
			}
			done[at] = true
			for _, f := range Faults[at.point] {
				for _, arg := range []uint8{0, 131} {
					all = append(all, append(slices.Clone(o.Script), Decision{at.actor, at.point, at.n, f.Name, arg}))
				}
			}
		}
	}
	return all
}

// nextSystem returns the system's next decision after the mark.
func (m Mark) nextSystem() decisionKey {
	return decisionKey{"system", AtSystem, int(m.At.Sub(epochStart) / systemPeriod)}
}

// faultAt returns a fault at the mark or at the system's next decision.
func (m Mark) faultAt(random *rand.Rand) Decision {
	at, arg := decisionKey{m.Actor, m.Point, m.N}, uint8(random.IntN(256))
	if random.IntN(4) == 0 {
		at = m.nextSystem()
	}
	return Decision{at.actor, at.point, at.n, weighted(Faults[at.point], random.IntN(1<<20)), arg}
}

// Mark is a decision of a schedule at which a fault has interesting effects.
type Mark struct {
	Actor string
	Point Point
	N     int
	At    time.Time
	Why   string // "delete", "again", "relist", "resume"
}
