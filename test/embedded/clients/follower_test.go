package clients

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/server/judge/faults"
	"github.com/keepwatch/keepwatch/test/matrix/clients"
	"github.com/keepwatch/keepwatch/test/peer"
)

// follower is one client on one server, and its events.
type follower struct {
	name    string
	proxy   *faults.Proxy // of this client alone
	started int           // lists that it made to start

	mu      sync.Mutex
	folded  state           // the fold of its events, see key
	created map[string]bool // UIDs
	deleted map[string]bool // UIDs
	ended   func() error    // why no more events follow, or nil
}

func newFollower(t *testing.T, server *peer.Server, name string) *follower {
	t.Helper()
	return &follower{
		name: name, proxy: faults.New(t, server.Config(), faults.Plan{}),
		folded: state{}, created: map[string]bool{}, deleted: map[string]bool{},
	}
}

// run runs the program for the duration of the test.
func (f *follower) run(t *testing.T, command []string) {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := peer.WriteKubeconfig(kubeconfig, f.proxy.Config()); err != nil {
		t.Fatal(err)
	}
	process, err := clients.Start(command, kubeconfig, namespace, dir, f.fold)
	if err != nil {
		t.Fatal(err)
	}
	f.ended = process.Err
	t.Cleanup(func() {
		process.End()
		if text, err := os.ReadFile(process.Log); t.Failed() && err == nil && len(text) > 0 {
			t.Logf("%s wrote\n%s", f.name, text[max(0, len(text)-4<<10):])
		}
	})
}

// fold folds one event.
func (f *follower) fold(e clients.Line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch e.Type {
	case "ADDED", "MODIFIED":
		f.put(f.key(e.Name, e.UID), e.UID+"/"+e.Revision)
	case "DELETED":
		delete(f.folded, f.key(e.Name, e.UID))
		f.created[e.UID], f.deleted[e.UID] = true, true
	case "LISTED":
		for name, was := range f.folded {
			if uidOf(e.Objects[name]) != uidOf(was) {
				f.deleted[uidOf(was)] = true
			}
		}
		f.folded = state{}
		for name, is := range e.Objects {
			f.put(name, is)
		}
	}
}

func (f *follower) put(name, is string) {
	f.folded[name] = is
	f.created[uidOf(is)] = true
}

// key identifies an object in the client's events. kopf orders only the events of one UID:
// it may send an object before the deletion of the one with the same name.
func (f *follower) key(name, uid string) string {
	if f.name == "kopf" {
		return uid
	}
	return name
}

// expected is a state by the client's keys.
func (f *follower) expected(server state) state {
	s := state{}
	for name, is := range server {
		s[f.key(name, uidOf(is))] = is
	}
	return s
}

func uidOf(s string) string { uid, _, _ := strings.Cut(s, "/"); return uid }

func (f *follower) state() (state, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.folded), f.ended()
}

// requests are the client's lists and watches of ConfigMaps that the server answered.
func (f *follower) requests() (lists, watches []faults.Entry) {
	for _, e := range f.proxy.Transcript() {
		switch {
		case e.Resource != "configmaps" || e.Code == 0:
		case e.Class == faults.Watch:
			watches = append(watches, e)
		default:
			lists = append(lists, e)
		}
	}
	return lists, watches
}

// busiest is the largest number of those requests within ten seconds.
func busiest(requests []faults.Entry) (most int) {
	slices.SortFunc(requests, func(a, b faults.Entry) int { return int(a.Start - b.Start) })
	first := 0
	for last, r := range requests {
		for r.Start-requests[first].Start > 10*time.Second {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}
