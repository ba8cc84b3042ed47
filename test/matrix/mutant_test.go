package matrix

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

// asMutant, in the environment, has the test binary follow a namespace as the named mutant.
const asMutant = "MATRIX_TEST_MUTANT"

// mutant is a client with at most one bug. Without one it lists, reports the difference to its state,
// and watches until the server answers 410.
type mutant struct {
	bug   string
	maps  typed.ConfigMapInterface
	state map[string]clients.Line
	from  string // the revision of the next watch
	first string // of the first
	count int    // events
}

// TestMutants plants the bugs of clients, each of which its cell must show.
func TestMutants(t *testing.T) {
	if *record != "" {
		t.Skip("TestMatrix measures")
	}
	server := StartServer(t, KubeAPIServer)
	nothing := func(r Result) bool {
		return r.Outcome == Right && r.LostFinal+r.LostDeletes+r.Duplicates+r.Violations == 0 &&
			(r.Hidden || r.LostIntermediate == 0)
	}
	// short is for those that never become right, or need not: what they show does not depend on how far they come.
	const short = 20 * time.Second
	mutants := []struct {
		bug, plan string
		settle    time.Duration
		shows     func(Result) bool
	}{
		{"none", "cuts", await.Deadline, nothing},
		{"none", "compaction", await.Deadline, nothing},
		{"forgets deletions", "compaction", short, func(r Result) bool {
			return r.Outcome != Right && r.LostDeletes > 0 && r.Violations > 0
		}},
		{"skips frames", "none", short, func(r Result) bool { return r.LostIntermediate > 0 && r.Violations > 0 }},
		{"retries at the same revision", "compaction", short, func(r Result) bool {
			return r.Outcome == Hung && r.Lists == 0 && r.LostFinal > 0 && r.Requests > 1
		}},
		{"begins again", "cuts", short, func(r Result) bool { return r.Duplicates > 0 && r.Violations > 0 }},
		{"ends with its watch", "cuts", await.Deadline, func(r Result) bool {
			return r.Outcome == Died && r.LostFinal > 0
		}},
		{"skips frames", "aks-idle", short, func(r Result) bool { return r.LostIntermediate > 0 && r.Violations > 0 }},
		{"begins again", "slow-watcher", short, func(r Result) bool { return r.Duplicates > 0 && r.Violations > 0 }},
	}
	for _, m := range mutants {
		t.Run(m.bug+"/"+m.plan, func(t *testing.T) {
			t.Parallel()
			plan, err := FindPlan(m.plan)
			if err != nil {
				t.Fatal(err)
			}
			command := []string{"/usr/bin/env", asMutant + "=" + m.bug, os.Args[0]}
			r := Cell{Client: m.bug, View: clients.Events, Command: command, Plan: plan, Seed: draw(),
				settle: m.settle}.Run(t, server)
			t.Logf("%s, %d lost deletions, %d lost states, %d duplicates, %d violations, %d lists, %d requests",
				r.Outcome, r.LostDeletes, r.LostIntermediate, r.Duplicates, r.Violations, r.Lists, r.Requests)
			if !m.shows(r) {
				t.Errorf("the result does not show it: %+v", r)
			}
		})
	}
}

func mutantMain(bug string) {
	if err := runMutant(bug, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runMutant(bug, kubeconfig, namespace string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	m := &mutant{bug: bug, maps: api.CoreV1().ConfigMaps(namespace), state: map[string]clients.Line{}}
	for {
		err := m.follow(context.Background())
		if m.bug == "ends with its watch" {
			return err
		}
		if expired(err) && m.bug != "retries at the same revision" {
			m.from = ""
		}
		time.Sleep(50 * time.Millisecond) // as clients do between attempts
	}
}

func expired(err error) bool { return apierrors.IsGone(err) || apierrors.IsResourceExpired(err) }

// follow lists if it has to, and watches until the watch ends.
func (m *mutant) follow(ctx context.Context) error {
	if m.from == "" {
		list, err := m.maps.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		m.list(list.ResourceVersion, func(yield func(metav1.Object)) {
			for i := range list.Items {
				yield(&list.Items[i])
			}
		})
	}
	w, err := m.maps.Watch(ctx, metav1.ListOptions{ResourceVersion: m.from})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		o, ok := e.Object.(metav1.Object)
		if !ok || e.Type == watch.Error {
			return apierrors.FromObject(e.Object)
		}
		m.event(string(e.Type), o)
	}
	if m.bug == "begins again" {
		m.from = m.first
	}
	return nil
}

// list reports the difference to the mutant's state.
func (m *mutant) list(revision string, each func(func(metav1.Object))) {
	listed := map[string]bool{}
	var report []clients.Line
	each(func(o metav1.Object) {
		listed[string(o.GetUID())] = true
		was, known := m.state[o.GetName()]
		now := clients.Line{Type: "ADDED", Name: o.GetName(), UID: string(o.GetUID()), Revision: o.GetResourceVersion()}
		if known && was.UID == now.UID {
			now.Type = "MODIFIED"
		}
		if was.Revision != now.Revision {
			report = append(report, now)
		}
	})
	if m.bug != "forgets deletions" {
		for _, was := range m.state {
			if !listed[was.UID] {
				was.Type = "DELETED"
				report = slices.Insert(report, 0, was)
			}
		}
	}
	for _, line := range report {
		m.report(line)
	}
	m.from = revision
	if m.first == "" {
		m.first = revision
	}
}

func (m *mutant) event(kind string, o metav1.Object) {
	m.from = o.GetResourceVersion()
	m.count++
	if m.bug == "skips frames" && m.count%5 == 0 {
		return
	}
	m.report(clients.Line{Type: kind, Name: o.GetName(), UID: string(o.GetUID()), Revision: o.GetResourceVersion()})
}

func (m *mutant) report(line clients.Line) {
	if line.Type == "DELETED" {
		delete(m.state, line.Name)
	} else {
		m.state[line.Name] = line
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}
