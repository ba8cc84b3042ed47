package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// widgets is a server with three objects of the type widgets.example.com, in one version. Its CustomResourceDefinitions
// cannot be read.
type widgets struct {
	*httptest.Server

	mu       sync.Mutex
	version  string // empty: the type is not served
	down     bool   // the server of the group is
	revision int
	changed  chan struct{} // closed with the next change, which ends all watches
}

func newWidgets(t *testing.T, version string) *widgets {
	t.Helper()
	s := &widgets{version: version, revision: 210, changed: make(chan struct{})}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	setenv(t, "KUBECACHEDIR="+t.TempDir())
	return s
}

// serve changes how the type is served. Other resources are written meanwhile.
func (s *widgets) serve(version string, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.down = version, down
	s.revision += 10
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *widgets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	version, down, revision, changed := s.version, s.down, s.revision, s.changed
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	group := fmt.Sprintf(
		`{"kind":"APIGroup","apiVersion":"v1","name":"example.com","versions":[{"groupVersion":"example.com/%s","version":"%[1]s"}]}`, version)
	served := "/apis/example.com/" + version
	switch path := r.URL.Path; {
	case path == "/api":
		io.WriteString(w, `{"kind":"APIVersions","versions":["v1"]}`)
	case path == "/api/v1":
		io.WriteString(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[]}`)
	case path == "/apis" && version == "":
		io.WriteString(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
	case path == "/apis":
		fmt.Fprintf(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[%s]}`, group)
	case strings.HasPrefix(path, "/apis/apiextensions.k8s.io/"):
		refuse(w, 403, "Forbidden")
	case version == "":
		http.NotFound(w, r)
	case path == "/apis/example.com":
		io.WriteString(w, group)
	case down && strings.HasPrefix(path, served):
		refuse(w, 503, "ServiceUnavailable")
	case path == served:
		fmt.Fprintf(w, `{"kind":"APIResourceList","groupVersion":"example.com/%s","resources":[
			{"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","verbs":["list","watch"]}]}`, version)
	case path == served+"/widgets" && r.URL.Query().Has("sendInitialEvents"):
		refuse(w, 400, "BadRequest")
	case path == served+"/widgets" && r.URL.Query().Has("watch"):
		s.watch(w, r, version, revision, changed)
	case path == served+"/widgets":
		var items []string
		for i := range 3 {
			items = append(items, widget(version, i, 205+i))
		}
		fmt.Fprintf(w, `{"kind":"WidgetList","apiVersion":"example.com/%s","metadata":{"resourceVersion":"%d"},"items":[%s]}`,
			version, revision, strings.Join(items, ","))
	default:
		refuse(w, 404, "NotFound")
	}
}

// watch sends an event in the version v2, a bookmark, and then nothing until something changes.
func (s *widgets) watch(w http.ResponseWriter, r *http.Request, version string, revision int, changed <-chan struct{}) {
	if version == "v2" {
		fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, widget(version, 3, revision))
	}
	fmt.Fprintf(w,
		`{"type":"BOOKMARK","object":{"kind":"Widget","apiVersion":"example.com/%s","metadata":{"resourceVersion":"%d"}}}`,
		version, revision)
	http.NewResponseController(w).Flush()
	select {
	case <-changed:
	case <-r.Context().Done():
	}
}

func widget(version string, number, revision int) string {
	return fmt.Sprintf(
		`{"kind":"Widget","apiVersion":"example.com/%s","metadata":{"namespace":"default","name":"w%d","uid":"uid-%[2]d","resourceVersion":"%d"}}`, version, number, revision)
}

// following is a process whose stdout is collected.
type following struct {
	*process
	stdout output
}

func startFollowing(t *testing.T, args ...string) *following {
	t.Helper()
	p := &following{process: newProcess(t, append([]string{self(t)}, args...))}
	p.Stdout = &p.stdout
	p.start(t)
	return p
}

func (s *widgets) start(t *testing.T, args ...string) *following {
	t.Helper()
	return startFollowing(t, append(args, "-s", s.URL)...)
}

// wait waits until the n-th line on stdout with a text.
func (p *following) wait(t *testing.T, text string, n int) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("waited for %q; stdout:\n%s\nstderr:\n%s", text, &p.stdout, p.stderr)
		}
	}()
	p.await(t, text, func() bool { return strings.Count(p.stdout.String(), text) >= n })
}

// foldLines is the fold of docs/watch.md: names by UID, of lines whose ids are repeated once.
func foldLines(t *testing.T, text string) map[string]string {
	t.Helper()
	seen, objects := map[string]bool{}, map[string]string{}
	for line := range strings.Lines(text) {
		var event struct {
			Type, ID string
			Object   struct{ Metadata struct{ Name, UID string } }
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatal(err)
		}
		switch m := event.Object.Metadata; {
		case event.ID == "" || seen[event.ID]:
			continue
		case event.Type == "DELETED":
			delete(objects, m.UID)
		default:
			objects[m.UID] = m.Name
		}
		seen[event.ID] = true
	}
	return objects
}

// TestTypeLeavesAndReturns follows the types of a group, which is not served for a time. Its objects stay. It returns
// while the stream runs, and once more while it does not.
func TestTypeLeavesAndReturns(t *testing.T) {
	parallel(t)
	setenv(t, "KEEPWATCH_TEST_HURRIED=1")
	s := newWidgets(t, "v1")
	args := []string{"watch", "*.example.com", "-A", "--state", t.TempDir()}
	p := s.start(t, args...)
	p.wait(t, `"count":3`, 1)
	s.serve("", false)
	p.wait(t, `"type":"DELETED"`, 3)
	s.serve("v1", false)
	p.wait(t, `"count":3`, 2)
	s.serve("", false)
	p.wait(t, `"type":"DELETED"`, 6)
	p.end()
	s.serve("v1", false)
	again := s.start(t, args...)
	again.wait(t, `"count":3`, 1)
	again.end()
	all := p.stdout.String() + again.stdout.String()
	if got := foldLines(t, all); len(got) != 3 {
		t.Errorf("the lines add up to %v:\n%s", got, all)
	}
	if n := strings.Count(all, `"type":"DELETED"`); n != 6 {
		t.Errorf("%d deletions:\n%s", n, all)
	}
}

// TestWatchEndsWithItsReader closes the pipe that a stream has written to, as the end of its parent does. The stream
// has nothing more to write.
func TestWatchEndsWithItsReader(t *testing.T) {
	parallel(t)
	s := newWidgets(t, "v1")
	for _, types := range []string{"widgets.example.com", "*.example.com"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p := startWatch(t, w, types, "-A", "-s", s.URL)
		w.Close()
		for lines := bufio.NewScanner(r); !strings.Contains(lines.Text(), "SYNCED"); {
			if !lines.Scan() {
				t.Fatalf("%s: stdout has ended: %s", types, p.stderr)
			}
		}
		r.Close()
		p.exit(t)
		if s := p.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGPIPE {
			t.Errorf("%s: %v: %s", types, p.ProcessState, p.stderr)
		}
	}
}

// TestTypeIsNotGone follows the types of a group while answers that prove nothing say that it is not there.
func TestTypeIsNotGone(t *testing.T) {
	parallel(t)
	setenv(t, "KEEPWATCH_TEST_HURRIED=1")
	s := newWidgets(t, "v1")
	hidden := make(chan func(http.ResponseWriter, *http.Request) bool, 1)
	hidden <- nil
	requests := make(chan string, 1000)
	balancer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hide := <-hidden
		hidden <- hide
		if strings.HasPrefix(r.URL.Path, "/apis") && !strings.Contains(r.URL.Path, "widgets") && hide != nil && hide(w, r) {
			select {
			case requests <- r.URL.Path:
			default:
			}
			return
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(balancer.Close)
	t.Cleanup(balancer.CloseClientConnections)
	p := startFollowing(t, "watch", "*.example.com", "-A", "-s", balancer.URL)
	p.wait(t, `"count":3`, 1)
	for name, hide := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"a plain 404 for everything": func(w http.ResponseWriter, r *http.Request) bool {
			http.NotFound(w, r)
			return true
		},
		"a 404 for the group": func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Path == "/apis/example.com" && refuse(w, 404, "NotFound")
		},
		"a 404 for the version": func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Path == "/apis/example.com/v1" && refuse(w, 404, "NotFound")
		},
	} {
		<-hidden
		hidden <- hide
		for range 20 { // more than follow.LeaveAfter
			select {
			case <-requests:
			case <-time.After(await.Deadline):
				t.Fatalf("%s: no request", name)
			}
		}
		<-hidden
		hidden <- nil
	}
	if p.end(); strings.Contains(p.stdout.String(), "DELETED") || strings.Contains(p.stderr.String(), "any more") {
		t.Errorf("stdout:\n%s\nstderr:\n%s", &p.stdout, p.stderr)
	}
}

// TestTypeChangesItsVersion follows a type that was named without a version. The server then serves another one.
func TestTypeChangesItsVersion(t *testing.T) {
	parallel(t)
	s := newWidgets(t, "v1")
	p := s.start(t, "watch", "widgets.example.com", "-A")
	p.wait(t, `"count":3`, 1)
	s.serve("v2", false)
	p.wait(t, `"apiVersion":"example.com/v2","metadata":{"namespace":"default","name":"w3"`, 1)
	if got := foldLines(t, p.stdout.String()); len(got) != 4 {
		t.Errorf("the lines add up to %v", got)
	}
}

// TestTypeOfServerThatIsDown names a type of a group whose server is down, and types that no server has.
func TestTypeOfServerThatIsDown(t *testing.T) {
	parallel(t)
	s := newWidgets(t, "v1")
	s.serve("v1", true)
	for _, kind := range []string{"gizmos", "gizmos.other.com"} {
		if code, _, stderr := execute(t, "watch", kind, "-A", "-s", s.URL); code != 1 ||
			!strings.HasPrefix(stderr, "keepwatch: the server doesn't have a resource type") {
			t.Errorf("%s: exit %d, stderr %q", kind, code, stderr)
		}
	}
	for _, kind := range []string{"widgets.example.com", "widgets.v1.example.com", "*.example.com"} {
		s.serve("v1", true)
		setenv(t, "KUBECACHEDIR="+t.TempDir()) // without the types of the run before
		p := s.start(t, "watch", kind, "-A", "--until-synced")
		p.waitStderr(t, "example.com/v1")
		p.waitStderr(t, "; retrying in ")
		s.serve("v1", false)
		p.wait(t, `"count":3`, 1)
		if code := p.exit(t); code != 0 {
			t.Errorf("%s: exit %d: %s", kind, code, p.stderr)
		}
	}
}
