// Package sync stores several resources of a real kube-apiserver in databases, receivers, Kafka and NATS by keepwatch
// sync, while the syncs, the sinks and the API server are killed, connections break and etcd forgets
// its history.
//
//	storm_test.go      a cluster that changes, and what is killed meanwhile
//	history_test.go    what etcd has stored, by which each sink is judged
//	follower_test.go   a process of keepwatch sync, and the comparison of its sink with the cluster
//	tables_test.go     databases as sinks
//	receivers_test.go  files and an HTTP server as sinks
//	brokers_test.go    Kafka and NATS as sinks
//	leaders_test.go    two processes for each sink, of which a Lease elects one
package sync

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/sinks/testonly/natstest"
	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	seedFlag    = flag.Uint64("sync.seed", 1, "draw faults and changes as a run did that printed this seed; 0 draws anew")
	objectsFlag = flag.Int("sync.objects", 100, "how many objects of each of five types there are")
	changesFlag = flag.Int("sync.changes", 50_000, "how many changes follow their creation, of all types together")
	killsFlag   = flag.Int("sync.kills", 40, "how often something is killed or cut during the changes")
	compareFlag = flag.Int("sync.compare", 1, "compare the databases with the server after one in so many kills")
	sinksFlag   = flag.String("sync.sinks", ".",
		"run the storm with the sinks whose names match: postgres, sqlite, files, http, kafka, nats, nats-cluster, nats-bucket")
)

// gcPercent is the GOGC of all processes, unless it is set: with less garbage collection they leave the processors to
// the changes.
const gcPercent = 400

func TestMain(m *testing.M) {
	natstest.Main()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
		if err := os.Setenv("GOGC", strconv.Itoa(gcPercent)); err != nil {
			panic(err)
		}
	}
	peer.Main(m)
}

// kinds are the five types of the storm.
var kinds = []struct {
	resource schema.GroupVersionResource
	create   func(namespace string, i int) *unstructured.Unstructured
}{
	{load.Pods, load.SmallPod},
	{load.Widgets, load.Widget},
	{corev1.SchemeGroupVersion.WithResource("configmaps"), small("v1", "ConfigMap")},
	{corev1.SchemeGroupVersion.WithResource("serviceaccounts"), small("v1", "ServiceAccount")},
	{schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		small("coordination.k8s.io/v1", "Lease")},
}

func small(apiVersion, kind string) func(string, int) *unstructured.Unstructured {
	return func(namespace string, i int) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": apiVersion, "kind": kind,
			"metadata": map[string]any{"namespace": namespace, "name": fmt.Sprintf("o-%05d", i),
				"annotations": map[string]any{"text": "☃ ' \" \\ $1"}},
		}}
	}
}

// names are the types of the storm, as arguments of keepwatch sync.
func names() []string {
	var all []string
	for _, k := range kinds {
		all = append(all, k.resource.GroupResource().String())
	}
	return all
}

// storm is a cluster whose objects change, and those who follow it.
type storm struct {
	t         *testing.T
	seed      uint64
	random    *rand.Rand
	server    *peer.Server
	client    dynamic.Interface
	churns    []*load.Churn
	followers []*follower
	history   *history
	since     keepwatch.Revision // of etcd, at which every sink had everything
	deck      []action           // what is killed next
	killed    map[string]int
}

// newStorm defines the types on a server, and their objects' writers.
func newStorm(t *testing.T, server *peer.Server, seed uint64) *storm {
	t.Helper()
	s := &storm{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), server: server, killed: map[string]int{}}
	config := server.Config()
	if err := load.DefineWidgets(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if s.client, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "storm"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, k := range kinds {
		c := &load.Churn{Resource: k.resource, Namespace: "storm", Names: *objectsFlag, Seed: seed + uint64(i),
			Make: k.create, Patience: await.Deadline}
		if err := c.Connect(rest.CopyConfig(config)); err != nil {
			t.Fatal(err)
		}
		s.churns = append(s.churns, c)
	}
	return s
}

// TestStorm follows one cluster into every sink that this machine has, each by a process of its own, while everything
// is killed. At the end each sink has what the cluster has, and its history is judged by the writes.
func TestStorm(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	wanted, err := regexp.Compile("^(" + *sinksFlag + ")")
	if err != nil {
		t.Fatal(err)
	}
	s := newStorm(t, peer.Kubernetes(t), seed)
	for _, sink := range sinks {
		if !wanted.MatchString(sink.name) {
			continue
		}
		if missing := sink.missing(); missing != "" {
			t.Run(sink.name, func(t *testing.T) { t.Skip(missing) })
			continue
		}
		f := sink.follow(t)
		f.name = sink.name
		s.follow(f)
	}
	s.history = followHistory(t, s)
	s.work()
	for _, f := range s.followers {
		t.Run(f.name, f.judge)
		if tables, ok := f.contents.(*tables); ok {
			t.Run(f.name+"/examples", tables.examples)
			if tables.cuts == 0 {
				t.Errorf("%s was not compared at any cut during the changes", f.name)
			}
		}
	}
	t.Logf("%d writes; killed: %v", s.writes(), s.killed)
}

// sinks are those of the storm. missing returns why this machine cannot run one, or "".
var sinks = []struct {
	name    string
	missing func() string
	follow  func(*testing.T) *follower
}{
	{"postgres", missingPostgres, followPostgres},
	{"sqlite", none, followSQLite},
	{"files", none, followFiles},
	{"http", none, followHTTP},
	{"kafka", missingKafka, followKafka},
	{"nats", none, followNATS},
	{"nats-cluster", none, followNATSCluster},
	{"nats-bucket", none, followNATSBucket},
}

func none() string { return "" }

// work changes objects, and kills something at random moments.
func (s *storm) work() {
	s.during(func(ctx context.Context, c *load.Churn) error { return c.Create(ctx) }, len(kinds)**objectsFlag, 2)
	s.converge()
	each := *changesFlag / len(kinds)
	s.during(func(ctx context.Context, c *load.Churn) error { return c.Run(ctx, each) }, *changesFlag, *killsFlag)
	s.miss()
	s.during(func(ctx context.Context, c *load.Churn) error { return c.Run(ctx, missedChanges) }, len(kinds)*missedChanges,
		1)
	for _, f := range s.followers {
		f.calm()
		// The idle timeout of the test is shorter than the period of bookmarks; at a start they are asked for.
		f.process.Kill()
		f.launch(s.t)
	}
}

// miss makes changes while no process follows, and then etcd forgets them: only a list shows them.
func (s *storm) miss() {
	for _, f := range s.followers {
		f.process.Kill()
	}
	s.writeAll(func(ctx context.Context, c *load.Churn) error { return c.Run(ctx, missedChanges) })
	s.compact()
	s.restartServer()
	for _, f := range s.followers {
		f.launch(s.t)
	}
}

// missedChanges is how many changes of each type no process follows.
const missedChanges = 40

// converge waits until every sink has what the server has, while nothing is written. From now on only what is in a gap
// may be missing.
func (s *storm) converge() {
	s.t.Helper()
	for _, f := range s.followers {
		f.converge(s.t, f.current)
	}
	var err error
	if s.since, err = s.revision(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *storm) writeAll(write func(context.Context, *load.Churn) error) {
	s.t.Helper()
	if err := s.writing(write); err != nil {
		s.t.Fatalf("churn: %v", err)
	}
}

func (s *storm) writing(write func(context.Context, *load.Churn) error) error {
	group, ctx := errgroup.WithContext(s.t.Context())
	for _, c := range s.churns {
		group.Go(func() error { return write(ctx, c) })
	}
	return group.Wait()
}

// during writes while it kills something so often, at random moments, after about the same number of writes each.
func (s *storm) during(write func(context.Context, *load.Churn) error, writes, kills int) {
	done := make(chan error, 1)
	go func() { done <- s.writing(write) }()
	next := s.writes()
	for n, writing := 0, true; writing || n < kills; n++ {
		apart := writes / max(kills, 1)
		next += apart/2 + s.random.IntN(apart+1)
		for writing && (n >= kills || s.writes() < next) {
			select {
			case err := <-done:
				if err != nil {
					s.t.Fatalf("churn: %v", err)
				}
				writing = false
			case <-time.After(10 * time.Millisecond):
			}
		}
		if n < kills {
			time.Sleep(time.Duration(s.random.IntN(300)) * time.Millisecond) // also in the middle of what follows a write
			s.kill()
			s.check(n%*compareFlag == 0)
		}
	}
}

// writes returns how many writes were answered.
func (s *storm) writes() (n int) {
	for _, c := range s.churns {
		n += c.Writes()
	}
	return n
}

// check ends the test if a process has ended by itself, and compares the sinks that have cuts with the server.
func (s *storm) check(compare bool) {
	for _, f := range s.followers {
		f.mustRun(s.t)
		if compare {
			f.compareCut(s.t)
			f.readNew(s.t)
		}
	}
	if compare {
		s.t.Logf("after %d writes, killed: %v", s.writes(), s.killed)
	}
}

// action kills or cuts something.
type action struct {
	name string
	do   func()
}

// kill kills or cuts something: what is drawn from a deck that has everything.
func (s *storm) kill() {
	if len(s.deck) == 0 {
		s.deck = s.actions()
		s.random.Shuffle(len(s.deck), func(i, j int) { s.deck[i], s.deck[j] = s.deck[j], s.deck[i] })
	}
	next := s.deck[0]
	s.deck = s.deck[1:]
	s.killed[next.name]++
	next.do()
}

// actions are those of every follower, and of what they share.
func (s *storm) actions() (all []action) {
	for _, f := range s.followers {
		all = append(all, action{"sync", f.relaunch}, action{"sync while history is lost", func() {
			f.process.Kill()
			s.compact()
			f.launch(s.t)
		}})
		if f.killSink != nil {
			all = append(all, action{"sink", func() { f.killSink(s.random) }})
		}
		if f.cut != nil {
			all = append(all, action{"connection to the sink", func() { f.cut(s.random) }})
		}
	}
	return append(all, action{"history", s.compact}, action{"API server", s.restartServer},
		action{"API server", s.restartServer})
}

// compact lets etcd forget its history, which the test has recorded.
func (s *storm) compact() {
	s.t.Helper()
	now, err := s.revision(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.history.waitFor(s.t, now)
	if _, err := s.server.Compact(s.t.Context()); err != nil && !strings.Contains(err.Error(), "has been compacted") {
		s.t.Fatal(err)
	}
}

func (s *storm) restartServer() {
	s.t.Helper()
	s.server.Kill()
	if err := s.server.Restart(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}
