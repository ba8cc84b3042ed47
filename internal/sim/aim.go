package sim

import (
	"math/rand/v2"
	"time"
)

// Aim makes a schedule whose faults hit where it matters. It plays one that has
// writes alone, puts a fault at a delete, a name used again, a relist or a resume,
// plays that, and so on: what a fault leads to is the next one's target.
func Aim(seed uint64, play func(*Director) Outcome) Outcome {
	const variants = 8 // of the same writes
	random := rand.New(rand.NewPCG(seed, 0xa1))
	o := play(Draw(Mix{Seed: seed / variants}))
	for range 1 + random.IntN(3) {
		if len(o.Marks) == 0 {
			break
		}
		m := o.Marks[random.IntN(len(o.Marks))]
		o = play(Follow(append(o.Script, m.shoot(random))))
	}
	return o
}

// shoot is a fault at the mark, or in the system right after it.
func (m Mark) shoot(random *rand.Rand) Decision {
	d := Decision{Actor: m.Actor, Point: m.Point, N: m.N, Arg: uint8(random.IntN(256))}
	if random.IntN(4) == 0 {
		d.Actor, d.Point, d.N = "system", AtSystem, int(m.At.Sub(dawn)/systemPeriod)
	}
	d.Choice = weighted(Faults[d.Point], random.IntN(1<<20))
	return d
}

// Mark is a place in a schedule at which faults are worth aiming.
type Mark struct {
	Actor string
	Point Point
	N     int
	At    time.Time
	Why   string // "delete", "again", "relist", "resume"
}
