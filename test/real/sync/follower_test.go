package sync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/judge/faults"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
	"github.com/keepwatch/keepwatch/test/peer"
)

// contents are what a sink has.
type contents interface {
	// Current returns the current objects of a line.
	Current(ctx context.Context, line int) ([]sinktest.Row, error)
	// received returns everything that the sink has received, and fails the test if no history explains that. It is nil of
	// a sink that has the current objects only.
	received(t *testing.T) *received
}

// follower is a process of keepwatch sync, and its sink.
type follower struct {
	contents
	*storm
	name     string
	to       string
	flags    []string
	killSink func(*rand.Rand) // kills the sink's server, and starts it again; nil: it has none
	cut      func(*rand.Rand) // breaks connections between process and sink; nil: it has none

	command peer.Command
	process *peer.Process
	cutOff  atomic.Bool // the API server answers this process nothing
	calm    func()      // ends the faults between process and API server
}

// follow starts a follower behind a proxy with faults.
func (s *storm) follow(f *follower) {
	t := s.t
	t.Helper()
	f.storm = s
	quiet := make(chan struct{})
	proxy := faults.New(t, s.server.Config(), faults.Plan{Seed: s.seed + uint64(len(s.followers)),
		Fate: func(random *rand.Rand, req faults.Request) faults.Fault {
			if f.cutOff.Load() {
				return faults.Answer(apierrors.NewServiceUnavailable("the test cuts this process off"))
			}
			select {
			case <-quiet:
				return faults.None
			default:
				return faults.OneOf(0.3, 200<<10, faults.Storm())(random, req)
			}
		}})
	f.calm = func() { close(quiet) }
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := peer.WriteKubeconfig(kubeconfig, proxy.Config()); err != nil {
		t.Fatal(err)
	}
	f.command = peer.Command{Path: peer.Keepwatch(t), Log: filepath.Join(dir, "stderr"), Args: append([]string{
		"sync", strings.Join(names(), ","), "-n", "storm", "--to", f.to, "--kubeconfig", kubeconfig, "--idle-timeout", "5s",
		"--cache-dir", dir,
	}, f.flags...)}
	f.launch(t)
	t.Cleanup(func() { f.process.Kill() })
	s.followers = append(s.followers, f)
}

func (f *follower) launch(t *testing.T) {
	t.Helper()
	var err error
	if f.process, err = peer.Start(f.command); err != nil {
		t.Fatal(err)
	}
}

func (f *follower) relaunch() {
	f.process.Kill()
	f.launch(f.t)
}

// stderr returns the end of what all processes have printed.
func (f *follower) stderr() string {
	text, err := os.ReadFile(f.command.Log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// judge waits until the sink has what the server has, judges its history, and ends the process.
func (f *follower) judge(t *testing.T) {
	if tables, ok := f.contents.(*tables); ok {
		f.converge(t, tables.readCut)
		t.Logf("compared at %d cuts during the changes", tables.cuts)
	} else {
		f.converge(t, f.current)
	}
	if all := f.received(t); all != nil {
		all.judge(t, f.history.complete(t, f.storm), f.since)
	}
	if err := f.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := f.process.ExitCode(); code != 0 {
		t.Errorf("after SIGTERM it exits with %d", code)
	}
}

// readNew reads what a sink of messages or lines has received since the last call, so that the end of the test does not
// read everything at once.
func (f *follower) readNew(t *testing.T) {
	if _, ok := f.contents.(interface{ States() []sinktest.State }); !ok {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := f.Current(ctx, 0); err != nil {
		t.Logf("%s is not read now: %v", f.name, err) // it was killed just now, or a transaction is open
	}
}

// current reads the current objects. They are at any revision.
func (f *follower) current(ctx context.Context) (sink.Cut, []sinktest.Row, error) {
	rows, err := f.Current(ctx, 0)
	return sink.Cut{Revision: math.MaxInt64}, rows, err
}

// converge waits until what is read equals the server, at the server's newest revision or above. It returns the
// greatest revision of the server's objects.
func (f *follower) converge(t *testing.T, read func(context.Context) (sink.Cut, []sinktest.Row, error)) (
	newest keepwatch.Revision) {
	t.Helper()
	want, newest, err := f.objects(t, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await.State(t, f.name+" equals the server", func() (bool, string) {
		f.mustRun(t)
		cut, rows, err := read(t.Context())
		differs := difference(rows, want)
		return err == nil && differs == "" && cut.Revision >= newest,
			fmt.Sprintf("cut %d of at least %d, %v: %s\n%s", cut.Revision, newest, err, differs, f.stderr())
	})
	return newest
}

// mustRun ends the test if the process has ended by itself.
func (f *follower) mustRun(t *testing.T) {
	t.Helper()
	select {
	case <-f.process.Done():
		t.Fatalf("%s: the sync ended by itself with exit code %d: %s", f.name, f.process.ExitCode(), f.stderr())
	default:
	}
}

// objects lists the server's objects of all types, as soon as it answers, and returns their greatest revision. The
// error is that the server has forgotten a revision.
func (s *storm) objects(t *testing.T, options metav1.ListOptions) (all map[string]*unstructured.Unstructured,
	newest keepwatch.Revision, err error) {
	t.Helper()
	var forgotten error
	await.NoError(t, "the server lists its objects", func() (err error) {
		// A server that has just started answers 429, and one that has not read a revision yet 504.
		if all, newest, err = s.list(t.Context(), options); apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			forgotten, err = err, nil
		}
		return err
	})
	return all, newest, forgotten
}

func (s *storm) list(ctx context.Context, options metav1.ListOptions) (all map[string]*unstructured.Unstructured,
	newest keepwatch.Revision, err error) {
	all = map[string]*unstructured.Unstructured{}
	for _, k := range kinds {
		list, err := s.client.Resource(k.resource).Namespace("storm").List(ctx, options)
		if err != nil {
			return nil, 0, fmt.Errorf("list %s: %w", k.resource.Resource, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			revision, err := keepwatch.ParseRevision(o.GetResourceVersion())
			if err != nil {
				return nil, 0, err
			}
			newest = max(newest, revision)
			all[objectKey(k.resource, o.GetName())] = o
		}
	}
	return all, newest, nil
}

func objectKey(resource schema.GroupVersionResource, name string) string {
	return resource.GroupResource().String() + " " + name
}

// difference describes the first difference between rows and objects, or returns "".
func difference(rows []sinktest.Row, want map[string]*unstructured.Unstructured) string {
	seen := map[string]bool{}
	for _, row := range rows {
		key := row.Resource + " " + row.Name
		o, ok := want[key]
		if !ok {
			return key + " does not exist on the server"
		}
		if seen[key] {
			return key + " is stored twice"
		}
		seen[key] = true
		if row.UID != string(o.GetUID()) || row.Revision.String() != o.GetResourceVersion() {
			return fmt.Sprintf("%s is %s/%d, on the server %s/%s", key, row.UID, row.Revision, o.GetUID(),
				o.GetResourceVersion())
		}
		text, err := o.MarshalJSON()
		if err != nil || !sameJSON(text, []byte(row.Object)) {
			return fmt.Sprintf("%s is\n%s\non the server\n%s", key, row.Object, text)
		}
	}
	for key := range want {
		if !seen[key] {
			return key + " is missing"
		}
	}
	return ""
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)) == nil && reflect.DeepEqual(x, y)
}
