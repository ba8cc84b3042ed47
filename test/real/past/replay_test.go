package past

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/test/matrix"
	"github.com/keepwatch/keepwatch/test/matrix/clients"
	"github.com/keepwatch/keepwatch/test/peer"
	"github.com/keepwatch/keepwatch/test/rawwatch"
)

// TestReplays records a storm: writes of sixteen clients, a gap, a crash of the sync. Programs of four projects follow
// the replay from before the gap and from after it, and end with the state of the server; they lose nothing but what
// the gap hides, and see nothing twice. Watches of all views, with streaming lists, are judged by the promises.
func TestReplays(t *testing.T) {
	writes, watchers := int64(*changes), 100
	if writes == 0 {
		if writes = 20_000; testing.Short() {
			writes, watchers = 800, 40
		}
	}
	t.Logf("-past.changes %d", writes)
	server := peer.LatestKubernetes(t)
	etcd, err := server.Etcd().Client()
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	r := &rig{T: t, server: server, dir: t.TempDir(), random: rand.New(rand.NewPCG(rand.Uint64(), 1))}
	const maps, widgets = "configmaps", "widgets.example.com" // that the trial writes
	// kopf begins only if it finds the others.
	const types = maps + "," + widgets + ",namespaces,customresourcedefinitions.apiextensions.k8s.io"
	var stored *peer.Process
	start := func(want string) { stored = r.startSync(types, r.database(), want) }
	trial := rawwatch.Record(t, server.Config(), etcd, func() { start("synced at") })
	trial.Written(writes / 4)
	for _, resource := range []string{maps, widgets} { // without an object before it, the log has no row of a gap
		r.until("the history has "+resource, func() bool { return len(r.events(resource)) > 0 })
	}
	stored.Kill()
	trial.Written(writes / 4)
	if _, err := etcd.Compact(t.Context(), trial.RecordRevision(), clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil { // it has what etcd has forgotten
		t.Fatal(err)
	}
	start("") // a type without changes is behind the others for up to a minute
	afterGap := r.afterGap(maps, widgets)
	began := time.Now()
	trial.Written(writes / 4)
	stored.Kill()
	trial.Written(writes / 4)
	start("")
	ended := time.Now()
	trial.End()

	past := r.serveHistory(r.database(), "--max-replays", "200")
	at := func(moment string) *rest.Config {
		config := rest.CopyConfig(past)
		config.Host += "/" + moment
		return config
	}
	pace := max(1, ended.Sub(began).Seconds()/5)
	atOnce, paced := fmt.Sprintf("revision/%d/speed/0", afterGap), fmt.Sprintf("revision/%d/speed/%g", afterGap, pace)
	committed := trial.ConfigMaps(namespace)
	var running sync.WaitGroup
	follow := func(name string, from keepwatch.Revision, moment string, least time.Duration) {
		program, err := clients.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		command, err := program.Command()
		if err != nil {
			t.Run(name, func(t *testing.T) { t.Skipf("%s is NOT tested, it needs %v", name, err) })
			return
		}
		running.Go(func() { r.follow(committed, command, name+" at "+moment, at(moment), from, afterGap, least) })
	}
	for _, name := range []string{"client-go informer", "kopf", "fabric8 7.9.0", "kubectl get -w"} {
		follow(name, trial.Start(), fmt.Sprintf("revision/%d/speed/0", trial.Start()), 0)
		if !testing.Short() || name == "client-go informer" {
			follow(name, afterGap, atOnce, 0)
			follow(name, afterGap, paced, time.Duration(float64(ended.Sub(began))/pace))
		}
	}
	running.Wait()
	trial.Replay(afterGap, watchers, []*rest.Config{at(atOnce), at(paced)}, at("now"))
}

// event is a row of keepwatch history log.
type event struct {
	Type     string
	Revision keepwatch.Revision
}

// events returns what the history has of a type, oldest first; nothing if it cannot be read.
func (r *rig) events(resource string) []event {
	r.Helper()
	out, code := r.keepwatch("history", "log", resource, "-A", "--from", r.database(), "-o", "json")
	var log struct{ Events []event }
	if code != 0 || json.Unmarshal([]byte(out), &log) != nil {
		return nil
	}
	return log.Events
}

// afterGap returns a revision that the history has of all types, after their gaps.
func (r *rig) afterGap(types ...string) (newest keepwatch.Revision) {
	r.Helper()
	for _, resource := range types {
		r.until("the history of "+resource+" goes on after a gap", func() bool {
			all := r.events(resource)
			if len(all) == 0 {
				return false
			}
			last := all[len(all)-1]
			newest = max(newest, last.Revision)
			return last.Type != "GAP" && slices.ContainsFunc(all, func(e event) bool { return e.Type == "GAP" })
		})
	}
	return newest
}

// namespace is the one of the storm that programs follow.
const namespace = "ns1"

// follow lets a program follow its ConfigMaps from a revision on, and judges what its user has seen. A gap hides
// states up to another revision.
func (r *rig) follow(writes []check.Write, command []string, name string, at *rest.Config, from,
	afterGap keepwatch.Revision, least time.Duration) {
	r.Helper()
	dir := r.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := peer.WriteKubeconfig(kubeconfig, at); err != nil {
		r.Error(err)
		return
	}
	var mu sync.Mutex
	user, events := matrix.NewUser(nil), 0
	began := time.Now()
	process, err := clients.Start(command, kubeconfig, namespace, dir, func(line clients.Line) {
		mu.Lock()
		defer mu.Unlock()
		user.Receive(line)
		events++
	})
	if err != nil {
		r.Error(err)
		return
	}
	defer process.End()
	var seen matrix.Counts
	r.until(fmt.Sprintf("%s has the last state", name), func() bool {
		mu.Lock()
		defer mu.Unlock()
		seen = user.Count(writes, from)
		seen.LostIntermediate = user.Count(writes, afterGap).LostIntermediate
		return seen.LostFinal == 0 || process.Err() != nil
	})
	took := time.Since(began)
	if err := process.Err(); err != nil {
		text, _ := os.ReadFile(process.Log)
		r.Errorf("%s: %v\n%s", name, err, text)
		return
	}
	r.Logf("%s: %d lines in %v: %+v", name, events, took, seen)
	if seen != (matrix.Counts{}) {
		r.Errorf("%s has seen %+v wrongly", name, seen)
	}
	if took < least {
		r.Errorf("%s: a replay of at least %v took %v", name, least, took)
	}
}

// serveHistory serves the history of a database for the duration of the test, and returns it without a moment.
func (r *rig) serveHistory(database string, flags ...string) *rest.Config {
	r.Helper()
	kubeconfig := filepath.Join(r.TempDir(), "kubeconfig")
	r.start("at/MOMENT", append([]string{"serve", "--history", database, "--listen", "127.0.0.1:0",
		"--kubeconfig-out", kubeconfig}, flags...)...)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		r.Fatal(err)
	}
	config.Host = strings.TrimSuffix(config.Host, "/now")
	return config
}
