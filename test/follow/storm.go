package follow

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/judge/faults"
	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/ndjson"
	"github.com/keepwatch/keepwatch/test/peer"
)

// Storm is the main job under everything that can happen to it: objects churn
// while the stream's connection meets faults, the stream is killed and started
// again, etcd is compacted and the server restarted.
type Storm struct {
	Resource  schema.GroupVersionResource
	Type      string // the argument of keepwatch watch
	Namespace string
	Make      func(namespace string, i int) *unstructured.Unstructured
	Objects   int
	// Operations follow the creation of all objects.
	Operations int
	Seed       uint64
	// Color, if not empty, follows only the objects with this label, which churn adds and
	// removes.
	Color string
	// HTTP1 makes each watch a connection of its own.
	HTTP1 bool
}

const (
	// idle is the stream's idle deadline, so short that a stall costs a test little.
	idle = 5 * time.Second
	// ours is how often a storm itself lists, for the state at the end.
	ours = 1
)

// Run runs the storm on a server and judges the stream.
func (s Storm) Run(t *testing.T, server *peer.Server) {
	ctx := t.Context()
	t.Logf("seed %d", s.Seed)
	churn := &load.Churn{Resource: s.Resource, Namespace: s.Namespace, Names: s.Objects, Seed: s.Seed, Make: s.Make}
	if err := churn.Connect(server.Config()); err != nil {
		t.Fatal(err)
	}
	w := &faultSource{
		t: t, server: server, start: time.Now(), random: rand.New(rand.NewPCG(s.Seed, 1)),
		resource: s.Resource.GroupResource(),
	}
	w.count()
	w.counted, w.terminated = -w.counted, -w.terminated
	w.proxy = faults.New(t, server.Config(), faults.Plan{Seed: s.Seed, Fate: w.drawFault, HTTP1: s.HTTP1})
	args := []string{
		s.Type, "-n", s.Namespace, "--state", t.TempDir(), "--idle-timeout", idle.String(), "--kubeconfig",
		kubeconfig(t, w.proxy),
	}
	if s.Color != "" {
		args = append(args, "-l", "color="+s.Color)
	}
	w.follower = New(t, args...)
	w.follower.Selected = s.Color != ""

	w.follower.Start()
	w.during(func() error { return churn.Create(ctx) })
	w.during(func() error { return churn.Run(ctx, s.Operations) })
	w.downtime(func() error { return churn.Run(ctx, s.Operations/10) })
	w.during(func() error { return churn.Run(ctx, s.Operations/10) })
	w.calm.Store(true)

	want, err := churn.State(ctx)
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(want, func(_ string, o *unstructured.Unstructured) bool {
		return s.Color != "" && o.GetLabels()["color"] != s.Color
	})
	fold := converge(t, w.follower, want)
	code, err := w.follower.End()
	if err != nil || code != 0 {
		t.Errorf("asked to end, keepwatch watch exits with %d, %v", code, err)
	}
	w.count()
	lists := judgeLists(t, w)
	judge(t, fold, churn.Records())
	if !slices.ContainsFunc(fold.Gaps, func(g ndjson.Gap) bool { return g.Reason == "downtime" }) {
		t.Error("no gap is due to the downtime")
	}
	t.Logf("%s; %d objects lived, %d kills, %d compactions, %d server restarts, %d lists (%d pages by the server's metrics, which ended %d slow watches); faults %v",
		fold.Summary(), len(churn.Records()), len(w.kills), w.compactions, len(w.restarts), lists, w.counted-ours,
		w.terminated, w.faults())
}

// kubeconfig is a file with the proxy's access.
func kubeconfig(t *testing.T, proxy *faults.Proxy) string {
	t.Helper()
	file := t.TempDir() + "/kubeconfig"
	if err := peer.WriteKubeconfig(file, proxy.Config()); err != nil {
		t.Fatal(err)
	}
	return file
}

// converge waits until the fold of the stream is the server's state.
func converge(t *testing.T, f *Follower, want map[string]*unstructured.Unstructured) *ndjson.Fold {
	t.Helper()
	var fold *ndjson.Fold
	await.State(t, "the fold is the server's state", func() (bool, string) {
		var err error
		if fold, err = f.Fold(); err != nil {
			t.Fatal(err)
		}
		differs := difference(fold, want)
		select {
		case <-f.Process().Done():
			t.Fatalf("keepwatch watch ended by itself, exit code %d; %s", f.Process().ExitCode(), differs)
		default:
		}
		return differs == "", differs
	})
	return fold
}
