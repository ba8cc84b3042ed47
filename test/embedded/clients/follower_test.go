package clients

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/faults"
	"github.com/keepwatch/keepwatch/test/peer"
)

// event is a line of a program: ADDED, MODIFIED or DELETED with an object, or LISTED with
// all objects, for clients whose user compares lists.
type event struct {
	Type                string
	Name, UID, Revision string
	Objects             state
}

// follower is one client on one server, and its events.
type follower struct {
	name    string
	proxy   *faults.Proxy // of this client alone
	started int           // lists that it made to start

	mu      sync.Mutex
	folded  state           // the fold of its events, see key
	created map[string]bool // UIDs
	deleted map[string]bool // UIDs
	ended   error
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
	kubeconfig, log := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "log")
	if err := peer.WriteKubeconfig(kubeconfig, f.proxy.Config()); err != nil {
		t.Fatal(err)
	}
	lines, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	process, err := peer.Start(peer.Command{
		Path: command[0], Args: append(slices.Clone(command[1:]), kubeconfig, namespace),
		Env: []string{"HOME=" + dir, "PYTHONDONTWRITEBYTECODE=1"}, Stdout: out, Log: log,
	})
	out.Close()
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() { f.read(lines) })
	t.Cleanup(func() {
		process.Kill()
		reading.Wait()
		lines.Close()
		if text, err := os.ReadFile(log); t.Failed() && err == nil && len(text) > 0 {
			t.Logf("%s wrote\n%s", f.name, text[max(0, len(text)-4<<10):])
		}
	})
}

// read folds the program's lines until it ends.
func (f *follower) read(lines *os.File) {
	scanner := bufio.NewScanner(lines)
	scanner.Buffer(nil, 1<<20)
	err := errors.New("the process has ended")
	for scanner.Scan() {
		var e event
		if bad := json.Unmarshal(scanner.Bytes(), &e); bad != nil {
			err = fmt.Errorf("%q: %w", scanner.Text(), bad)
			break
		}
		f.fold(e)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = errors.Join(err, scanner.Err())
}

// fold folds one event.
func (f *follower) fold(e event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.created[e.UID] = true
	switch e.Type {
	case "ADDED", "MODIFIED":
		f.put(f.key(e.Name, e.UID), e.UID+"/"+e.Revision)
	case "DELETED":
		delete(f.folded, f.key(e.Name, e.UID))
		f.deleted[e.UID] = true
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
	return maps.Clone(f.folded), f.ended
}

// informs runs client-go's informer for the duration of the test.
func (f *follower) sendsNotifications(t *testing.T) {
	t.Helper()
	api, err := kubernetes.NewForConfig(f.proxy.Config())
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(api, 0, informers.WithNamespace(namespace))
	about := func(kind string, o any) {
		if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = unknown.Obj
		}
		m := o.(metav1.Object)
		f.fold(event{Type: kind, Name: m.GetName(), UID: string(m.GetUID()), Revision: m.GetResourceVersion()})
	}
	if _, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { about("ADDED", o) },
		UpdateFunc: func(_, o any) { about("MODIFIED", o) },
		DeleteFunc: func(o any) { about("DELETED", o) },
	}); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown) // the test's context has ended by then
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
