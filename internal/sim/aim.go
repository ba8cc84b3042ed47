package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Aim makes a schedule whose faults hit where it matters. It plays one that has
// writes alone, puts a fault at a delete, a name used again, a relist or a resume,
// plays that, and so on: what a fault leads to is the next one's target.
func Aim(seed uint64, play func(*Director) Outcome) Outcome {
	const variants = 8 // of the same writes
	random := rand.New(rand.NewPCG(seed, 0xa1))
	o := play(clean(seed / 5 / variants)) // each fifth schedule is aimed
	for range 1 + random.IntN(3) {
		if len(o.Marks) == 0 || len(o.Problems) > 0 {
			break
		}
		m := o.Marks[random.IntN(len(o.Marks))]
		o = play(Follow(append(o.Script, m.shoot(random))))
	}
	return o
}

func (m Mark) compare(o Mark) int {
	return cmp.Or(m.At.Compare(o.At), cmp.Compare(m.Actor, o.Actor), cmp.Compare(m.Point, o.Point), cmp.Compare(m.N, o.N), cmp.Compare(m.Why, o.Why))
}

// clean is a schedule that has writes alone.
func clean(seed uint64) *Director { return Draw(Mix{Seed: seed}) }

// Sweep has a clean schedule's script with each fault at each of its marks, one
// at a time: there, and in the system right after.
func Sweep(o Outcome) []Script {
	var all []Script
	done := map[place]bool{}
	for _, m := range o.Marks {
		for _, at := range []place{{m.Actor, m.Point, m.N}, m.after()} {
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

// after is the next decision of the system behind the mark.
func (m Mark) after() place { return place{"system", AtSystem, int(m.At.Sub(dawn) / systemPeriod)} }

// shoot is a fault at the mark, or in the system right after it.
func (m Mark) shoot(random *rand.Rand) Decision {
	at, arg := place{m.Actor, m.Point, m.N}, uint8(random.IntN(256))
	if random.IntN(4) == 0 {
		at = m.after()
	}
	return Decision{at.actor, at.point, at.n, weighted(Faults[at.point], random.IntN(1<<20)), arg}
}

// Mark is a place in a schedule at which faults are worth aiming.
type Mark struct {
	Actor string
	Point Point
	N     int
	At    time.Time
	Why   string // "delete", "again", "relist", "resume"
}
