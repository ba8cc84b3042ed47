package matrix

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/matrix/clients"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	record = flag.String("matrix.record", "",
		"measure the cells, and write their results into this folder; empty: TestMatrix is skipped")
	client   = flag.String("matrix.client", "", "only this client")
	plan     = flag.String("matrix.plan", "", "only the plans whose names match this regular expression")
	upstream = flag.String("matrix.upstream", string(KubeAPIServer),
		"the API server: kube-apiserver, serve, keepwatch-apiserver or proxy")
	seed = flag.Uint64("matrix.seed", 1, "draw faults and writes as a run did with this seed; 0 draws anew")
)

func TestMain(m *testing.M) {
	if name := os.Getenv(asMutant); name != "" {
		mutantMain(name)
		return
	}
	// Cells wait, mostly.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	peer.Main(m)
}

func draw() uint64 {
	if *seed != 0 {
		return *seed
	}
	return rand.Uint64()
}

// TestMatrix measures the cells that the flags select: the clients one after the other, four plans of each at a
// time. What a client does is no failure.
func TestMatrix(t *testing.T) {
	if *record == "" {
		t.Skip("see make matrix")
	}
	programs, plans := clients.Programs(), slices.Clone(Plans)
	if *client != "" {
		programs = slices.DeleteFunc(programs, func(p clients.Program) bool { return p.Name != *client })
	}
	if *plan != "" {
		selected, err := regexp.Compile(*plan)
		if err != nil {
			t.Fatalf("-matrix.plan: %v", err)
		}
		plans = slices.DeleteFunc(plans, func(p Plan) bool { return !selected.MatchString(p.Name) })
	}
	if len(programs) == 0 || len(plans) == 0 {
		t.Fatalf("there is no client %q or no plan %q", *client, *plan)
	}
	server := StartServer(t, Upstream(*upstream))
	for _, p := range programs {
		command, err := p.Command()
		if err != nil {
			t.Run(p.Name, func(t *testing.T) { t.Skipf("%s is NOT measured, it needs %v", p.Name, err) })
			continue
		}
		version, err := p.Version()
		if err != nil {
			t.Fatal(err)
		}
		var saving sync.Mutex
		t.Run(p.Name, func(t *testing.T) {
			for _, plan := range plans {
				t.Run(plan.Name, func(t *testing.T) {
					t.Parallel()
					cell := Cell{Client: p.Name, View: p.View, Command: command, Plan: plan, Seed: draw()}
					result := cell.Run(t, server)
					result.Version = version
					t.Logf("%+v", result)
					saving.Lock()
					defer saving.Unlock()
					if err := result.Save(*record); err != nil {
						t.Fatal(err)
					}
				})
			}
		})
	}
}

// TestCells runs ten cells on the real kube-apiserver. Ours lose nothing: not the final state, no
// deletion, and an intermediate state only if a list hides it.
func TestCells(t *testing.T) {
	if *record != "" {
		t.Skip("TestMatrix measures")
	}
	server := StartServer(t, KubeAPIServer)
	cells := [][2]string{{"client-go informer", "none"}}
	for _, client := range []string{"keepwatch watch", "keepwatch informer", "keepwatch operator"} {
		for _, plan := range []string{"none", "cuts", "compaction"} {
			cells = append(cells, [2]string{client, plan})
		}
	}
	for _, names := range cells {
		t.Run(fmt.Sprintf("%s/%s", names[0], names[1]), func(t *testing.T) {
			t.Parallel()
			r := runNamed(t, server, names[0], names[1])
			t.Logf("%+v", r)
			if r.Outcome != Right || r.LostFinal > 0 || r.LostDeletes > 0 || r.Violations > 0 {
				t.Errorf("%s is %s, and lost %d final states and %d deletions; violations: %q", r.Client, r.Outcome, r.LostFinal,
					r.LostDeletes, r.Broken)
			}
			if !r.Hidden && r.View == clients.Events && (r.LostIntermediate > 0 || r.Duplicates > 0) {
				t.Errorf("%s lost %d intermediate states, and repeated %d events", r.Client, r.LostIntermediate, r.Duplicates)
			}
			if met := r.Faults > 0; met != (names[1] == "cuts") && names[1] != "compaction" {
				t.Errorf("%s met %d faults", r.Client, r.Faults)
			}
			if !r.Hidden && r.Lists > 0 {
				t.Errorf("%s listed %d times although the server has the history", r.Client, r.Lists)
			}
		})
	}
}

func runNamed(t *testing.T, server *Server, client, plan string) Result {
	t.Helper()
	p, err := clients.Find(client)
	if err != nil {
		t.Fatal(err)
	}
	command, err := p.Command()
	if err != nil {
		t.Fatal(err)
	}
	found, err := FindPlan(plan)
	if err != nil {
		t.Fatal(err)
	}
	return Cell{Client: p.Name, View: p.View, Command: command, Plan: found, Seed: draw(),
		settle: await.Deadline}.Run(t, server)
}
