package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// newCluster starts an API server for a test, which runs beside others. Its kubeconfig is that of the test's commands.
func newCluster(t *testing.T) (client *kubernetes.Clientset, kubeconfig string) {
	t.Helper()
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	p := clusterProcess(t, kubeconfig)
	p.start(t)
	p.waitReady(t)
	return useCluster(t, kubeconfig), kubeconfig
}

// quiet is an API server for tests that create no objects but such with generated names. It starts with the first of
// them, and ends with the last test.
var quiet struct {
	sync.Once
	kubeconfig string
	end        func()
}

// quietCluster is newCluster with the server quiet.
func quietCluster(t *testing.T) (kubeconfig string) {
	t.Helper()
	quiet.Do(func() {
		dir, err := os.MkdirTemp("", "keepwatch-quiet-")
		if err != nil {
			t.Fatal(err)
		}
		quiet.kubeconfig = filepath.Join(dir, "kubeconfig")
		p := clusterProcess(t, quiet.kubeconfig)
		p.startForAll(t)
		quiet.end = func() {
			p.end()
			_ = os.RemoveAll(dir)
		}
		p.waitReady(t)
	})
	useCluster(t, quiet.kubeconfig)
	return quiet.kubeconfig
}

// clusterProcess is an API server, which writes its kubeconfig.
func clusterProcess(t *testing.T, kubeconfig string) *process {
	t.Helper()
	return newProcess(t, []string{self(t), "serve", "--controllers=false", "--listen", "127.0.0.1:0", "--kubeconfig-out",
		kubeconfig})
}

// useCluster lets the commands of a test use a server.
func useCluster(t *testing.T, kubeconfig string) *kubernetes.Clientset {
	t.Helper()
	setenv(t, "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+t.TempDir())
	return clientOf(t, kubeconfig)
}

// configMap creates a ConfigMap in the namespace default.
func configMap(t *testing.T, client kubernetes.Interface, name, app string) {
	t.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func deleteConfigMap(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	if err := client.CoreV1().ConfigMaps("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestWatch runs the tests that share one server.
func TestWatch(t *testing.T) {
	parallel(t)
	client, _ := newCluster(t)
	t.Run("outputs", func(t *testing.T) { testWatchOutputs(t, client) })
	t.Run("errors", testWatchErrors)
	t.Run("without a reader", func(t *testing.T) { testWatchWithoutReader(t, client) })
	t.Run("reader closed", testWatchReaderClosed)
	t.Run("full disk", testWatchFullDisk)
}

func TestWatchUsage(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none")) // the errors precede any request
	tests := []struct {
		args []string
		want string
	}{
		{nil, "give the type"},
		{[]string{"pods,services", "a"}, "a name can't be combined with several types"},
		{[]string{"pods,services/a"}, "give types and not objects"},
		{[]string{"pods,"}, "the resource type is missing"},
		{[]string{"pods*"}, "is no pattern: *.GROUP"},
		{[]string{"pods,w*.example.com"}, "is no pattern: *.GROUP"},
		{[]string{"*.Example.com"}, "is no pattern: *.GROUP"},
		{[]string{"pods", "a", "b"}, `not "pods a b"`},
		{[]string{"pods/a", "b"}, "a stream has one resource type"},
		{[]string{"pods/a", "pods/b"}, "a stream has one resource type"},
		{[]string{"pods/"}, "TYPE/NAME"},
		{[]string{"/a"}, "TYPE/NAME"},
		{[]string{"pods/a/b"}, "TYPE/NAME"},
		{[]string{"pods", ""}, "TYPE/NAME"},
		{[]string{"pods", "a", "-l", "x=y"}, "can't be combined"},
		{[]string{"pods", "-l", "a=b=c"}, `--selector "a=b=c"`},
		{[]string{"pods", "--field-selector", "a"}, `--field-selector "a"`},
		{[]string{"pods", "--chunk-size=-1"}, "--chunk-size"},
		{[]string{"pods", "--idle-timeout=-1s"}, "--idle-timeout must be more than 0: -1s"},
		{[]string{"pods", "--idle-timeout=0"}, "--idle-timeout must be more than 0: 0s"},
		{[]string{"pods", "--idle-timeout=abc"}, "--idle-timeout"},
		{[]string{"pods", "--request-timeout=abc"},
			`--request-timeout must be a time like 30s or 2m, or a number of seconds, not "abc"`},
		{[]string{"pods", "--request-timeout=-1s"}, "--request-timeout"},
		{[]string{"pods", "--nonsense"}, "unknown flag"},
		{[]string{"pods", "--acknowledge", "-o", "name"}, "--acknowledge needs the output ndjson"},
		{[]string{"pods", "-o", "nonsense"}, `output format "nonsense" is unknown: give one of ndjson, table, wide`},
		{[]string{"pods", "-o", "jsonpath={"}, "jsonpath"},
		{[]string{"pods", "-o", "jsonpath"}, "template"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			code, stdout, stderr := execute(t, append([]string{"watch"}, tt.args...)...)
			lines := strings.Split(stderr, "\n")
			if code != 2 || stdout != "" || !strings.Contains(lines[0], tt.want) ||
				!strings.HasPrefix(lines[0], "keepwatch: ") ||
				!slices.Equal(lines[1:], []string{"See 'keepwatch watch --help'.", ""}) {
				t.Errorf("exit %d, stdout %q, stderr %q, want exit 2 and one sentence with %q", code, stdout, stderr, tt.want)
			}
		})
	}
}

func TestWatchHelp(t *testing.T) {
	code, stdout, _ := execute(t, "watch", "--help")
	if code != 0 {
		t.Errorf("exit %d", code)
	}
	for _, text := range []string{
		"--kubeconfig", "--context", "-n, --namespace", "--as ", "-A, --all-namespaces", "-l, --selector", "--field-selector",
		"-o, --output", "--bookmarks", "--state", "--until-synced", "--acknowledge", "--chunk-size",
		"The stream itself never times out", "also waits for a server",
		`{"type":"SYNCED"`, `{"type":"GAP"`, "Exit codes: 0", "141",
	} {
		if !strings.Contains(stdout, text) {
			t.Errorf("the help lacks %q", text)
		}
	}
}

// testWatchOutputs lists once in every format.
func testWatchOutputs(t *testing.T, client kubernetes.Interface) {
	configMap(t, client, "one", "x")
	configMap(t, client, "two", "y")
	defer deleteConfigMap(t, client, "one")
	defer deleteConfigMap(t, client, "two")
	tests := []struct {
		args   []string
		stdout []string // lines; "…" at the end of one stands for anything
		stderr string
	}{
		{[]string{"cm"}, []string{`{"type":"ADDED","revision":"…`, `{"type":"ADDED","revision":"…`,
			`{"type":"SYNCED","revision":"…`}, ""},
		{[]string{"configmaps", "one"}, []string{`{"type":"ADDED","revision":"…`, `{"type":"SYNCED","revision":"…`}, ""},
		{[]string{"configmap/one", "-o", "name"}, []string{"configmap/one"}, "synced at …: configmaps in default 1"},
		{[]string{"ConfigMap", "-l", "app=y", "-o", "name"}, []string{"configmap/two"},
			"synced at …: configmaps in default 1"},
		{[]string{"cm", "--field-selector", "metadata.name!=two", "-o", "name"}, []string{"configmap/one"},
			": configmaps in default 1"},
		{[]string{"cm", "one", "--field-selector", "metadata.namespace=other", "-o", "name"}, nil,
			": configmaps in default 0"},
		{[]string{"cm", "-n", "kube-system", "-o", "name"}, nil, ": configmaps in kube-system 0"},
		{[]string{"cm", "--chunk-size", "1", "-o", "name"}, []string{"configmap/one", "configmap/two"},
			": configmaps in default 2"},
		{[]string{"cm", "--chunk-size", "0", "-o", "name"}, []string{"configmap/one", "configmap/two"},
			": configmaps in default 2"},
		{[]string{"deploy.apps", "-o", "name"}, nil, ": deployments.apps in default 0"},
		{[]string{"deployments.v1.apps"}, []string{`{"type":"SYNCED","revision":"…`}, ""},
		{[]string{"ns", "-n", "nowhere", "-o", "name"}, []string{"namespace/default", "namespace/kube-node-lease",
			"namespace/kube-public", "namespace/kube-system"}, ": namespaces 4"},
		{[]string{"cm", "-o", "table"}, []string{"NAME   DATA   AGE", "one    0      …", "two    0      …"},
			": configmaps in default 2"},
		{[]string{"cm", "-A", "-o", "wide"}, []string{"NAMESPACE   NAME   DATA   AGE", "default     one    0      …",
			"default     two    0      …"}, ": configmaps 2"},
		{[]string{"cm", "-o", "table", "--output-watch-events"}, []string{"EVENT   …", "ADDED      one    0      …",
			"ADDED      two    0      …"}, ": configmaps in default 2"},
		{[]string{"cm", "-o", `jsonpath={.metadata.name}{"\n"}`}, []string{"one", "two"}, ": configmaps in default 2"},
		{[]string{"cm", "--template", `{{.metadata.name}}{{"\n"}}`}, []string{"one", "two"}, ": configmaps in default 2"},
		{[]string{"cm", "two", "-o", "yaml"}, []string{
			"apiVersion: v1", "kind: ConfigMap", "metadata:", "  creationTimestamp: …", "  labels:", "    app: \"y\"",
			"  name: two", "  namespace: default", "  resourceVersion: …", "  uid: …",
		}, ": configmaps in default 1"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			code, stdout, stderr := execute(t, append([]string{"watch", "--until-synced"}, tt.args...)...)
			if code != 0 {
				t.Errorf("exit %d: %s", code, stderr)
			}
			var lines []string
			for l := range strings.Lines(stdout) {
				lines = append(lines, strings.TrimRight(l, " \n"))
			}
			if !slices.EqualFunc(lines, tt.stdout, like) {
				t.Errorf("stdout\n%s\nwant\n%s", stdout, strings.Join(tt.stdout, "\n"))
			}
			if before, after, _ := strings.Cut(tt.stderr, "…"); !strings.Contains(stderr, before) ||
				!strings.Contains(stderr, after) {
				t.Errorf("stderr %q, want %q", stderr, tt.stderr)
			}
		})
	}
}

func like(got, want string) bool {
	if begin, ok := strings.CutSuffix(want, "…"); ok {
		return strings.HasPrefix(got, begin)
	}
	return got == want
}

func testWatchErrors(t *testing.T) {
	tests := []struct {
		args []string
		code int
		want string
	}{
		{[]string{"nonsense"}, 1, `the server doesn't have a resource type "nonsense"`},
		{[]string{"pods.example.org"}, 1, `the server doesn't have a resource type "pods" in group "example.org"`},
		{[]string{"pods", "x", "-A"}, 2, "can't be combined with all namespaces"},
		{[]string{"pods", "--field-selector", "spec.nonsense=1"}, 1, "field label not supported: spec.nonsense"},
		{[]string{"pods", "--context", "nonsense"}, 1, `context "nonsense" does not exist`},
		{[]string{"pods", "--kubeconfig", "/nonexistent"}, 1, "--kubeconfig: the file /nonexistent does not exist"},
		{[]string{"pods", "--certificate-authority", "/nonexistent"}, 1, "unable to read certificate-authority /nonexistent"},
		{[]string{"pods", "--tls-server-name", "elsewhere", "--cache-dir", "fresh"}, 1, "not elsewhere"},
		{[]string{"pods", "--state", "/dev/null/state"}, 1, "state directory"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			if i := slices.Index(tt.args, "fresh"); i > 0 {
				tt.args[i] = t.TempDir()
			}
			code, stdout, stderr := execute(t, append([]string{"watch"}, tt.args...)...)
			if code != tt.code || stdout != "" || !strings.Contains(stderr, tt.want) {
				t.Errorf("exit %d, stdout %q, stderr %q, want %q", code, stdout, stderr, tt.want)
			}
			if !strings.HasPrefix(stderr, "keepwatch: ") || tt.code == 1 && strings.Count(stderr, "\n") != 1 {
				t.Errorf("it is not one sentence: %q", stderr)
			}
		})
	}
}

// startWatch starts `keepwatch watch` in a process of its own.
func startWatch(t *testing.T, stdout *os.File, args ...string) *process {
	t.Helper()
	p := newProcess(t, append([]string{self(t), "watch"}, args...))
	p.Stdout = stdout
	p.start(t)
	return p
}

// appending opens a file as `>>` does.
func appending(t *testing.T, name string) *os.File {
	t.Helper()
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// eventsIn returns the events in a file as type and name, without repetitions: a killed process may not
// have committed the last events that it printed.
func eventsIn(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	seen := map[string]bool{}
	for l := range bytes.Lines(text) {
		var line struct {
			Type, ID string
			Object   struct{ Metadata struct{ Name string } }
		}
		if err := json.Unmarshal(l, &line); err != nil {
			events = append(events, "incomplete")
		} else if line.ID != "" && !seen[line.ID] {
			seen[line.ID] = true
			events = append(events, line.Type+" "+line.Object.Metadata.Name)
		}
	}
	return events
}

// waitEvents waits until a file has exactly the wanted events.
func waitEvents(t *testing.T, p *process, name string, want ...string) {
	t.Helper()
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("got %q, want %q", got, want)
		}
	}()
	p.await(t, "the file has the events", func() bool {
		got = eventsIn(t, name)
		return slices.Equal(got, want)
	})
}

// TestWatchResumes ends a stream to a file by kill -9, SIGTERM and SIGINT, and restarts it.
// An object is deleted in between.
func TestWatchResumes(t *testing.T) {
	parallel(t)
	client, _ := newCluster(t)
	dir := t.TempDir()
	file, state := filepath.Join(dir, "out"), filepath.Join(dir, "state")
	out := appending(t, file)
	configMap(t, client, "one", "x")

	p := startWatch(t, out, "cm", "--state", state)
	configMap(t, client, "two", "x")
	waitEvents(t, p, file, "ADDED one", "ADDED two")
	for _, args := range [][]string{{"cm"}, {"cm", "-A"}, {"pods"}} {
		code, _, stderr := execute(t, append([]string{"watch", "--state", state}, args...)...)
		if want := "keepwatch: state directory " + state + " is in use by another keepwatch\n"; code != 1 || stderr != want {
			t.Errorf("a second one: exit %d, %q", code, stderr)
		}
	}
	p.Process.Kill()
	<-p.ended

	// A kill can leave an incomplete line behind.
	if _, err := out.WriteString(`{"type":"ADD`); err != nil {
		t.Fatal(err)
	}
	deleteConfigMap(t, client, "two")
	p = startWatch(t, out, "cm", "--state", state)
	want := []string{"ADDED one", "ADDED two", "incomplete", "DELETED two"}
	waitEvents(t, p, file, want...)
	configMap(t, client, "three", "x")
	want = append(want, "ADDED three")
	waitEvents(t, p, file, want...)
	p.Process.Signal(syscall.SIGTERM)
	if code := p.exit(t); code != 0 || p.stderr.String() != "" {
		t.Errorf("after SIGTERM: exit %d, stderr %q", code, p.stderr)
	}

	p = startWatch(t, out, "cm", "--state", state)
	deleteConfigMap(t, client, "one")
	want = append(want, "DELETED one")
	waitEvents(t, p, file, want...)
	p.Process.Signal(os.Interrupt)
	if code := p.exit(t); code != 130 || p.stderr.String() != "" {
		t.Errorf("after SIGINT: exit %d, stderr %q", code, p.stderr)
	}

	for _, tt := range []struct{ args, want string }{
		{"cm -A", "configmaps: it has these objects already, of another choice of namespaces"},
		{"cm -l app=x", "it has the state of configmaps in namespace default of cluster"},
		{"cm one", "it has the state of configmaps in namespace default of cluster"},
	} {
		code, _, stderr := execute(t, append([]string{"watch", "--state", state}, strings.Fields(tt.args)...)...)
		if code != 1 || !strings.Contains(stderr, tt.want) {
			t.Errorf("another stream %v: exit %d, %q", tt.args, code, stderr)
		}
	}
}

// TestWatchStateDeleted deletes the state of a running stream. The stream ends with an error, at the
// latest at the next event, because it could not store that it has printed the event.
func TestWatchStateDeleted(t *testing.T) {
	parallel(t)
	client, _ := newCluster(t)
	for app, next := range map[string]func(p *process){
		"terminated":  func(p *process) { p.Process.Signal(syscall.SIGTERM) },
		"interrupted": func(p *process) { p.Process.Signal(os.Interrupt) },
		"changed": func(*process) {
			configMap(t, client, "unknown", "changed")
		},
	} {
		t.Run(app, func(t *testing.T) {
			dir := t.TempDir()
			file, state := filepath.Join(dir, "out"), filepath.Join(dir, "state")
			known := "known-" + app
			configMap(t, client, known, app)
			p := startWatch(t, appending(t, file), "cm", "-l", "app="+app, "--state", state)
			waitEvents(t, p, file, "ADDED "+known)
			if err := os.RemoveAll(state); err != nil {
				t.Fatal(err)
			}
			next(p)
			want := "keepwatch: state file " + filepath.Join(state, "configmaps_default", "stream.db") +
				" was deleted while it was in use: the cursor is lost\n"
			if code := p.exit(t); code != 1 || p.stderr.String() != want {
				t.Errorf("exit %d, stderr %q, want 1 and %q", code, p.stderr, want)
			}
			if got := eventsIn(t, file); !slices.Equal(got, []string{"ADDED " + known}) {
				t.Errorf("got %q", got)
			}
			deleteConfigMap(t, client, known)
		})
	}
	deleteConfigMap(t, client, "unknown")
}

// testWatchWithoutReader ends a stream whose output is not read.
func testWatchWithoutReader(t *testing.T, client kubernetes.Interface) {
	for i := range 40 {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("large-", i)},
			Data: map[string]string{"x": strings.Repeat("x", 10_000)}}
		if _, err := client.CoreV1().ConfigMaps("kube-system").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := startWatch(t, w, "cm", "-n", "kube-system")
	w.Close()
	if _, err := bufio.NewReaderSize(r, 16).ReadByte(); err != nil { // it writes
		t.Fatal(err)
	}
	p.Process.Signal(syscall.SIGTERM)
	if code := p.exit(t); code != 0 {
		t.Errorf("exit %d: %s", code, p.stderr)
	}
}

// testWatchReaderClosed closes the pipe that a stream writes to: SIGPIPE ends the stream.
func testWatchReaderClosed(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	p := startWatch(t, w, "ns")
	w.Close()
	p.exit(t)
	if s := p.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGPIPE ||
		p.stderr.String() != "" {
		t.Errorf("%v: %s", p.ProcessState, p.stderr)
	}
}

func testWatchFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no device that is always full")
	}
	defer full.Close()
	p := startWatch(t, full, "ns")
	if code := p.exit(t); code != 1 || !strings.Contains(p.stderr.String(),
		"keepwatch: write the output: write /dev/stdout: no space left on device") {
		t.Errorf("exit %d, stderr %q", code, p.stderr)
	}
}

// fakeAPI serves documents by path, and answers 404 with a Status for other paths. It has no history
// and does not support streaming lists. The responses in first answer the first requests.
func fakeAPI(t *testing.T, documents map[string]string, first ...string) *httptest.Server {
	t.Helper()
	var mu sync.Mutex
	parallel(t)
	setenv(t, "KUBECACHEDIR="+t.TempDir())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		text, ok := documents[r.URL.Path]
		switch query := r.URL.Query(); {
		case len(first) > 0:
			text, first = first[0], first[1:]
		case query.Has("sendInitialEvents"):
			text = status(400, "BadRequest", "unknown parameter")
		case query.Has("watch"):
			text = status(410, "Expired", "too old")
		case !ok:
			text = status(404, "NotFound", "the server could not find the requested resource")
		}
		var s metav1.Status
		if err := json.Unmarshal([]byte(text), &s); err == nil && s.Code != 0 {
			w.WriteHeader(int(s.Code))
		}
		io.WriteString(w, text)
	}))
	t.Cleanup(server.Close)
	return server
}

func status(code int, reason, message string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":%q}`, reason,
		code, message)
}

const forbidden = `pods is forbidden: User "eve" cannot list resource "pods" in API group "" in the namespace "default"`

// documents returns the documents of a server that forbids to list pods, and that supports no watch of
// components.
func documents() map[string]string {
	return map[string]string{
		"/api":  `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[
			{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["list","watch"]},
			{"name":"components","singularName":"component","namespaced":false,"kind":"Component","verbs":["get","list"]}]}`,
		"/api/v1/namespaces/default/pods": status(403, "Forbidden", forbidden),
	}
}

// TestWatchForbidden checks that the stream ends with the server's message if the first list is refused.
func TestWatchForbidden(t *testing.T) {
	server := fakeAPI(t, documents())
	code, stdout, stderr := execute(t, "watch", "pods", "-s", server.URL)
	if code != 1 || stdout != "" || !strings.HasSuffix(stderr, forbidden+"\n") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// TestUnwatchableResource watches a resource that the server can only list.
func TestUnwatchableResource(t *testing.T) {
	server := fakeAPI(t, documents())
	code, stdout, stderr := execute(t, "watch", "components", "-s", server.URL)
	const want = "keepwatch: the server doesn't support list and watch for components, only get, list\n"
	if code != 1 || stdout != "" || stderr != want {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// TestStateHasKind lists pods with -o name, for which the server returns objects of kind
// PartialObjectMetadata. The later event DELETED has the kind Pod.
func TestStateHasKind(t *testing.T) {
	const list = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`
	const pod = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"namespace":"default","name":"a","uid":"u","resourceVersion":"5"}}`
	known := documents()
	server := fakeAPI(t, known)
	state := t.TempDir()
	watch := func(answer string, args ...string) string {
		t.Helper()
		known["/api/v1/namespaces/default/pods"] = answer
		code, stdout, stderr := execute(t, append([]string{"watch", "pods", "-s", server.URL, "--until-synced", "--state",
			state}, args...)...)
		if code != 0 {
			t.Errorf("exit %d: %s", code, stderr)
		}
		return stdout
	}
	if got := watch(fmt.Sprintf(list, 10, pod), "-o", "name"); got != "pod/a\n" {
		t.Errorf("printed %s", got)
	}
	got := watch(fmt.Sprintf(list, 20, ""))
	if want := `"object":{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"default","name":"a",`; !strings.Contains(
		got, want) {
		t.Errorf("printed %s, want %s", got, want)
	}
}

// TestWatchWaitsForTheServer starts a stream before the server is ready.
func TestWatchWaitsForTheServer(t *testing.T) {
	server := fakeAPI(t, documents(), status(503, "ServiceUnavailable", "starting up"), status(401, "Unauthorized",
		"Unauthorized"))
	code, stdout, stderr := execute(t, "watch", "pods", "-s", server.URL)
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	if code != 1 || stdout != "" || len(lines) < 2 || !strings.HasSuffix(lines[len(lines)-1], forbidden) {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	for _, l := range lines[:len(lines)-1] {
		if !strings.HasPrefix(l, "keepwatch: can't read the resource types of the server: ") ||
			!strings.Contains(l, "; retrying in ") {
			t.Errorf("stderr has %q", l)
		}
	}
}

// TestWatchWithoutAServer ends a stream while it waits for the server.
func TestWatchWithoutAServer(t *testing.T) {
	parallel(t)
	setenv(t, "KUBECACHEDIR="+t.TempDir())
	out := appending(t, filepath.Join(t.TempDir(), "out"))
	for signal, want := range map[os.Signal]int{syscall.SIGTERM: 0, os.Interrupt: 130} {
		p := startWatch(t, out, "pods", "-s", "https://127.0.0.1:1")
		p.waitStderr(t,
			"keepwatch: can't read the resource types of the server: dial tcp 127.0.0.1:1: connect: connection refused; retrying in ")
		p.Process.Signal(signal)
		if code := p.exit(t); code != want {
			t.Errorf("after %v: exit %d, stderr %q", signal, code, p.stderr)
		}
	}
}

// TestWatchToClosedStdout checks that a closed stdout is refused.
func TestWatchToClosedStdout(t *testing.T) {
	parallel(t)
	sh := exec.Command("sh", "-c", `exec "$0" watch pods -s https://127.0.0.1:1 >&-`, self(t))
	sh.Env = environment(t)
	var stderr bytes.Buffer
	sh.Stderr = &stderr
	if err := sh.Run(); sh.ProcessState.ExitCode() != 1 || !strings.HasPrefix(stderr.String(),
		"keepwatch: stdout is closed: ") {
		t.Errorf("%v: %s", err, &stderr)
	}
}
