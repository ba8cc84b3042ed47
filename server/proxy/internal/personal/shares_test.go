package personal

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch/server/readpath"
)

// twin is the dumb twin of shares.yielding: it looks at all views. It returns whether a view yields, whether that is
// one that nobody has used for long, and otherwise how many views its owner has.
func (v *Views) twin(to *View, now time.Time) (yields, abandoned bool, most int) {
	ofOwner, ofUser := map[string]int{}, map[string]int{}
	for _, w := range v.all {
		ofOwner[w.owner]++
		ofUser[w.subject.User.GetName()]++
	}
	newUser := to.subject.User.GetName()
	for _, w := range v.all {
		switch user := w.subject.User.GetName(); {
		case w.abandoned(now):
			yields, abandoned = true, true
		case !w.inUse() && user == newUser, w.owner != to.owner && ofOwner[w.owner] > ofOwner[to.owner]+1,
			w.owner == to.owner && ofUser[user] > ofUser[newUser]+1:
			yields, most = true, max(most, ofOwner[w.owner])
		}
	}
	return yields, abandoned, most
}

// Which view yields is found without a look at all of them, and is one that a look at all of them finds.
func TestYieldingViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seed = 44
		random := rand.New(rand.NewPCG(seed, 9))
		w := newWorld(t, "a")
		w.views.most = 30
		v := w.views
		var held []*View
		for step := range 20_000 {
			name := fmt.Sprint("user", random.IntN(6))
			if random.IntN(2) == 0 {
				name = fmt.Sprintf("system:serviceaccount:n%d:%d", random.IntN(3), random.IntN(4))
			}
			s := subject(name)
			s.Resource.Resource = fmt.Sprint("r", random.IntN(12))
			now, newer := time.Now(), &View{owner: readpath.Flow(s.User), subject: s}
			yields, abandoned, most := v.twin(newer, now)
			got := v.shares.yielding(newer, now)
			switch {
			case (got != nil) != yields:
				t.Fatalf("seed %d, step %d: %v yields, want %v", seed, step, got, yields)
			case got == nil:
			case got.abandoned(now) != abandoned:
				t.Fatalf("seed %d, step %d: one that nobody has used for long: %v", seed, step, abandoned)
			case !abandoned && v.shares.byName[got.owner].views != most:
				t.Fatalf("seed %d, step %d: one of %s, and another owner has %d views", seed, step, got.owner, most)
			case got.inUse() && got.holder.unused.Len() > 0:
				t.Fatalf("seed %d, step %d: one in use, and its user has others", seed, step)
			}
			if len(held) > 0 && random.IntN(2) == 0 {
				i := random.IntN(len(held))
				v.release(false, held[i])
				held = append(held[:i], held[i+1:]...)
			} else if views, err := v.hold(s); err == nil {
				held = append(held, views...)
			}
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
		}
		v.release(false, held...)
		if n := v.len(); n != 30 || v.shares.unused.Len() != n {
			t.Errorf("%d views, %d not in use", n, v.shares.unused.Len())
		}
	})
}
