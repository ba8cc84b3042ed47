package operators_test

import (
	"flag"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/server/judge/operators"
)

var (
	seedsFlag = flag.Int("operators.seeds", 1, "how many seeds choose plans of all kinds, for each correct operator")
	plansFlag = flag.Int("operators.plans", 4, "how many plans a seed chooses; 0: all")
)

// twin is an operator that is right under the plans of every kind, at each write of the whole workload.
type twin struct {
	name  string
	is    variant
	roles bool
}

// twins leave out those correct operators of bugs that are right for the plan of their bug only: finalized creates a
// child by what its cache says of a Widget that is gone, resized takes a size of old, childOfGeneration, password and
// defaulted do not look at children that somebody has deleted, and listsFinalizers never removes its finalizer.
var twins = []twin{
	{name: "a child", is: variant{do: namedChild}},
	{name: "a child, with roles", is: variant{do: namedChild}, roles: true},
	{name: "a child that the next version renames", is: variant{do: namedChild, next: &variant{do: renamedChild(true)}}},
	{name: "a finalizer before the child", is: variant{do: guarded(true)}},
	{name: "a finalizer until the child is gone", is: variant{do: deletesFirst(false)}},
	{name: "a size", is: variant{do: resizedOnce}},
	{name: "a loose child", is: variant{do: looseChild(true)}},
	{name: "a loose child with a generated name", is: variant{do: looseGenerated(true)}},
	{name: "a child with a generated name", is: variant{do: ownedGenerated(true)}},
	{name: "a child in another namespace", is: variant{do: distant(true)}},
}

// TestTwinsOverSeeds checks that these operators have no finding, whatever plans a seed chooses.
func TestTwinsOverSeeds(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute: TestCorrectTwins judges some")
	}
	for _, w := range twins {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			for seed := 1; seed <= *seedsFlag; seed++ {
				b := bug{files: len(wholeWorkload), roles: w.roles}
				report := b.judge(t, w.is, func(o *operators.Options) {
					o.Plans, o.Limit, o.Seed = nil, *plansFlag, uint64(seed)
					o.Outage(time.Second)
				})
				if len(report.Findings) > 0 || len(report.Failed()) > 0 || len(report.Results) == 0 {
					t.Errorf("seed %d: %s", seed, describe(t, report))
				}
			}
		})
	}
}
