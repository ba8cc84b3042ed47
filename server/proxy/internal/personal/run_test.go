package personal

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch"
)

// numbered returns the names of namespaces.
func numbered(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("n%03d", i))
	}
	return all
}

// slow returns a world whose server has other authorizers than roles, and takes a tenth of a second for each answer.
func slow(t *testing.T, namespaces int) *world {
	w := newWorld(t, numbered(namespaces)...)
	w.beyond, w.takes = true, 100*time.Millisecond
	return w
}

// No change waits for the end of a decision that is being made: neither a revocation, nor a grant, nor the end of a
// namespace, and none of them while changes go on.
func TestChangesDuringALongDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slow(t, 1000)
		w.bind("ada", "n400", true)
		w.bind("ada", "n900", true)
		view := w.of(subject("ada"))
		defer w.open(view)()
		time.Sleep(time.Minute)
		for i, step := range []struct {
			what   string
			change func()
			want   []string
		}{
			{"a revocation", func() { w.bind("ada", "n900", false) }, []string{"n400"}},
			{"a grant", func() { w.bind("ada", "n950", true) }, []string{"n400", "n950"}},
			{"a namespace made anew", func() {
				w.set(func() { w.uids["n400"] = "anew"; w.allowed["ada/n400"] = false })
				w.views.Recheck("n400")
			}, []string{"n950"}},
			{"changes without an end", func() {
				for range 3 {
					w.bindAs("other", userPrefix+"ada", "n001", true)
					time.Sleep(300 * time.Millisecond)
				}
				w.bind("ada", "n950", false)
			}, nil},
		} {
			w.views.Recheck()
			time.Sleep(2 * time.Second) // a decision takes twelve
			began := time.Now()
			step.change()
			if i == 3 {
				began = time.Now()
			}
			becomes(view, step.want...)
			if took := time.Since(began); took > time.Second {
				t.Errorf("%s takes %v", step.what, took)
			}
		}
	})
}

// A list that decides beside open watches keeps no revocation waiting either.
func TestRevocationDuringTheDecisionOfAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slow(t, 1000)
		w.bind("ada", "n900", true)
		view := w.of(subject("ada"))
		time.Sleep(10 * time.Minute)
		var deciding sync.WaitGroup
		deciding.Go(func() { w.of(subject("ada")) })
		time.Sleep(time.Second)
		defer w.open(view)()
		began := time.Now()
		w.bind("ada", "n900", false)
		becomes(view)
		if took := time.Since(began); took > time.Second {
			t.Errorf("it takes %v", took)
		}
		deciding.Wait()
	})
}

// What a decision allowed at its beginning and was revoked before its end is never shown.
func TestRevokedBeforeTheFirstDecisionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slow(t, 200)
		w.set(func() { w.allowed["ada/n000"], w.allowed["ada/n199"] = true, true })
		time.AfterFunc(time.Second, func() {
			w.set(func() { w.allowed["ada/n000"] = false })
			w.views.Touch(map[string]bool{userPrefix + "ada": true}, true)
		})
		if got := names(w.of(subject("ada"))); !slices.Equal(got, []string{"n199"}) {
			t.Errorf("ada has %v", got)
		}
	})
}

// Where roles alone decide, a namespace whose binding is deleted while others are asked about is shown neither then nor
// at the decision's end: it is not asked about again.
func TestUnboundDuringADecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slow(t, 20)
		w.set(func() { w.beyond = false })
		for _, namespace := range numbered(20) {
			w.bind("ada", namespace, true)
		}
		time.AfterFunc(150*time.Millisecond, func() { w.bind("ada", "n000", false) })
		if got := names(w.of(subject("ada"))); !slices.Equal(got, numbered(20)[1:]) {
			t.Errorf("ada has %v", got)
		}
	})
}

// What a decision denied before a change of bindings may be allowed by another authorizer when it ends. A revision that
// was listed without is not of the set that the next decision shows.
func TestRevisionsOfADecisionOvertakenByAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slow(t, 1000)
		w.bind("ada", "n900", true)
		view := w.of(subject("ada"))
		time.Sleep(10 * time.Minute)
		var listing sync.WaitGroup
		listing.Go(func() { w.of(subject("ada")) }) // takes twelve seconds, and the change settles in five
		time.Sleep(3 * time.Second)
		w.set(func() { w.allowed["ada/n001"] = true })
		w.bindAs("other", userPrefix+"ada", "n900", true)
		listing.Wait()
		if got := names(view); !slices.Equal(got, []string{"n900"}) {
			t.Fatalf("the list has %v", got)
		}
		view.Settle(t.Context(), w.newest)
		w.set(func() { w.revision += 10 })
		listed := w.revision
		w.of(subject("ada"))
		if got := names(view); !slices.Equal(got, []string{"n001", "n900"}) {
			t.Fatalf("the next list has %v", got)
		}
		if resumable(view, listed) {
			t.Error("what was listed without n001 is resumed as if it had been listed with it")
		}
	})
}

// An API server follows roles later than this process: a revocation that it knows a second later is asked about once
// more, although a decision is being made.
func TestLateServerDuringALongDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slow(t, 1000)
		w.bind("ada", "n900", true)
		view := w.of(subject("ada"))
		defer w.open(view)()
		time.Sleep(time.Minute)
		w.views.Recheck()
		time.Sleep(time.Second) // a decision takes twelve
		w.views.Touch(map[string]bool{userPrefix + "ada": true}, true)
		time.Sleep(time.Second)
		w.set(func() { w.allowed["ada/n900"] = false })
		began := time.Now()
		becomes(view)
		if took := time.Since(began); took > 1500*time.Millisecond {
			t.Errorf("it takes %v", took)
		}
	})
}

// A decision ends although bindings change all the time, and asks little more often than once about each namespace.
func TestDecisionsEndDuringChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slow(t, 1000)
		w.bind("ada", "n900", true)
		w.bind("ada", "n500", true)
		done := make(chan struct{})
		go func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				case <-time.After(500 * time.Millisecond):
					w.bindAs("other", userPrefix+"ada", "n001", i%2 == 0)
				}
			}
		}()
		began := time.Now()
		view := w.of(subject("ada"))
		close(done)
		took := time.Since(began)
		if got := names(view); !slices.Equal(got, []string{"n500", "n900"}) || took > 20*time.Second {
			t.Errorf("%v after %v", got, took)
		}
		n := 0
		w.set(func() {
			for _, asked := range w.asked {
				n += asked
			}
		})
		if n > 1300 {
			t.Errorf("%d questions about 1000 namespaces", n)
		}
	})
}

// An open view has what the server allows within a second after each change of bindings, and within one decision after
// each of others, whatever is being decided. It never has what was revoked by a binding a second before.
func TestRandomChangesDuringDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seed = 44
		w := slow(t, 40)
		random := rand.New(rand.NewPCG(seed, 7))
		view := w.of(subject("ada"))
		defer w.open(view)()
		revoked := map[string]time.Time{}
		for range 400 {
			w.set(func() { w.takes = time.Duration(random.IntN(150)) * time.Millisecond })
			namespace := fmt.Sprintf("n%03d", random.IntN(40))
			switch bound := w.allowed["ada/"+namespace]; {
			case random.IntN(10) == 0:
				w.set(func() { w.uids[namespace] = keepwatch.UID(fmt.Sprint(random.IntN(1e6))) })
				w.views.Recheck(namespace)
			case bound:
				w.bind("ada", namespace, false)
				revoked[namespace] = time.Now()
			default:
				if _, exists := w.roles.Bindings.Snapshot().Get(keepwatch.Key{Namespace: namespace, Name: "ada"}); !exists {
					w.bind("ada", namespace, true)
					delete(revoked, namespace)
				}
			}
			time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
			for _, shown := range names(view) {
				if at, ok := revoked[shown]; ok && time.Since(at) > 1500*time.Millisecond {
					t.Fatalf("seed %d: %s was revoked %v ago", seed, shown, time.Since(at))
				}
			}
		}
		time.Sleep(20 * time.Second)
		w.expect("ada")
		synctest.Wait()
	})
}

// The owners whose views are being decided share the further askers alike.
func TestAskersAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slow(t, 500)
		var deciding sync.WaitGroup
		for i := range 20 {
			deciding.Go(func() {
				if _, err := w.ofResource("ada", i); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		deciding.Go(func() { w.of(subject("bob")) })
		time.Sleep(950 * time.Millisecond) // between two answers
		w.set(func() {
			if ada, bob := w.now["ada"], w.now["bob"]; bob != reviewsOfView || ada < 20 || ada > 20+moreAskers/2 {
				t.Errorf("%d questions of 20 views of one user are in flight, and %d of one of another", ada, bob)
			}
		})
		deciding.Wait()
	})
}

// When namespaces come and go the server is asked about those alone. Where it has other authorizers than roles, and one
// is made every few seconds, it would be asked about all of them all the time. A change of bindings is not lost beside
// that.
func TestNamespacesThatComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slow(t, 100)
		w.bind("ada", "n001", true)
		w.bind("ada", "n002", true)
		w.set(func() { w.allowed["bob/"] = true })
		ada, bob := w.of(subject("ada")), w.of(subject("bob"))
		defer w.open(ada)()
		defer w.open(bob)()
		time.Sleep(20 * time.Second)
		is := func(about, others string, want ...string) {
			t.Helper()
			time.Sleep(2 * time.Second)
			asked := 0
			w.set(func() {
				for of, times := range w.asked {
					if strings.HasPrefix(of, "ada/") && of != "ada/"+about {
						asked += times
					}
				}
				clear(w.asked)
			})
			if got := names(ada); !slices.Equal(got, want) || (asked > 0) != (others != "") {
				t.Errorf("ada has %v, and %d questions are about others than %s", got, asked, about)
			}
			if has, of := ada.Count(); has != len(want) || of != len(w.uids) || len(names(bob)) != of {
				t.Errorf("ada has %d namespaces of %d, and bob all %d", has, of, len(names(bob)))
			}
		}
		move := func(name, uid string, allowed bool) {
			w.set(func() {
				if w.uids[name], w.allowed["ada/"+name] = keepwatch.UID(uid), allowed; uid == "" {
					delete(w.uids, name)
				}
			})
			w.views.Recheck(name)
		}
		w.set(func() { clear(w.asked) })
		move("new", "1", true)
		is("new", "", "n001", "n002", "new")
		move("new", "2", true)
		is("new", "", "n001", "n002", "new")
		if present, _, _ := ada.Namespaces(); !present.Equal(w.views.sets.of(map[string]keepwatch.UID{
			"n001": "n001-1", "n002": "n002-1", "new": "2"}, false, nil)) {
			t.Error("the namespace that was made anew is shown as the one before it")
		}
		move("new", "3", false)
		is("new", "", "n001", "n002")
		move("n002", "", false)
		is("n002", "", "n001")
		w.bind("ada", "n050", true)
		move("n002", "2", false)
		is("n002", "others", "n001", "n050")
		time.Sleep(10 * time.Second)
		w.set(func() { clear(w.asked); w.uids["n002"], w.allowed["ada/n002"] = "3", true })
		w.views.Recheck(numbered(maxMoved + 1)...)
		is("n002", "others", "n001", "n002", "n050")

		w.set(func() { w.takes = 0 })
		w.bind("carol", "n003", true)
		w.of(subject("carol"))
		w.bind("carol", "n003", false)
		w.views.Recheck("n004")
		if got := names(w.of(subject("carol"))); len(got) > 0 {
			t.Errorf("carol has %v", got)
		}
	})
}

// BenchmarkDecision measures a decision that changes nothing about the set of a user of some namespaces, whose answers
// are known: about all, as every two minutes, and about one that was made anew.
func BenchmarkDecision(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		for name, moved := range map[string][]string{"all": nil, "one": {"n007"}} {
			b.Run(fmt.Sprint(name, "-of-", n), func(b *testing.B) {
				w := youngWorld(b, numbered(n)...)
				for _, namespace := range numbered(n) {
					w.bind("ada", namespace, true)
				}
				view := w.of(subject("ada"))
				view.followed = time.Time{} // long ago
				for b.Loop() {
					w.views.Recheck(moved...)
					if err := view.decide(b.Context(), true); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
