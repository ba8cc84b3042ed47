// Package compared lets tools that copy changes into files follow the same resource of a real kube-apiserver, kills
// them, and counts the changes that never arrive, against etcd's history.
//
//	tools.go          the tools, and what each has written
//	compared_test.go  the run
package compared

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/test/peer"
)

// namespace has the Events.
const namespace = "storm"

// tool is a program that follows the Events of a namespace.
type tool struct {
	name    string
	command peer.Command
	read    func() (*written, error) // what its files have
	// onlyNew is true if the tool writes new objects, and by design neither their changes nor their deletions.
	onlyNew bool

	process *peer.Process
	cpu     time.Duration
	peak    int64
}

func (t *tool) start(tb testing.TB) {
	tb.Helper()
	var err error
	if t.process, err = peer.Start(t.command); err != nil {
		tb.Fatal(err)
	}
	process := t.process
	tb.Cleanup(process.Kill)
}

// measure adds the peak of the process that runs.
func (t *tool) measure() {
	if memory, err := t.process.Memory(); err == nil { // it may have ended
		t.peak = max(t.peak, memory.Peak)
	}
}

func (t *tool) kill() {
	t.measure()
	t.process.Kill()
	t.cpu += t.process.CPU()
}

// written is what a tool has written.
type written struct {
	states  map[string]int // resourceVersion → how often the state was written
	objects map[string]int // UID → how many states were written
	deleted map[string]int // UID → how often its deletion was written
	gaps    []gap          // declared ones
}

type gap struct{ from, to int64 }

func (w *written) add(kind string, o object) {
	if kind == "DELETED" {
		w.deleted[o.Metadata.UID]++
	} else {
		w.states[o.Metadata.ResourceVersion]++
		w.objects[o.Metadata.UID]++
	}
}

func newWritten() *written {
	return &written{states: map[string]int{}, objects: map[string]int{}, deleted: map[string]int{}}
}

// repeated returns how many states and deletions were written more than once, or how many objects were.
func (w *written) repeated(onlyNew bool) (n int) {
	all := []map[string]int{w.states, w.deleted}
	if onlyNew {
		all = []map[string]int{w.objects}
	}
	for _, counts := range all {
		for _, times := range counts {
			n += times - 1
		}
	}
	return n
}

type object struct {
	Metadata struct{ UID, ResourceVersion string }
}

// keepwatch returns keepwatch sync --to files:.
func keepwatch(tb testing.TB, kubeconfig string) *tool {
	dir := tb.TempDir()
	out := filepath.Join(dir, "out")
	return &tool{
		name: "keepwatch sync --to files",
		command: peer.Command{Path: peer.Keepwatch(tb), Log: filepath.Join(dir, "log"), Args: []string{
			"sync", "events", "-n", namespace, "--to", "files:" + out, "--kubeconfig", kubeconfig, "--cache-dir", dir,
		}},
		read: func() (*written, error) { return readKeepwatch(out) },
	}
}

// readKeepwatch reads the files as docs/sync-messages.md says. They are not compressed.
func readKeepwatch(dir string) (*written, error) {
	var manifest struct {
		Files []struct {
			Name  string
			Bytes int64
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err == nil {
		err = json.Unmarshal(text, &manifest)
	}
	if err != nil {
		return nil, err
	}
	w := newWritten()
	for _, f := range manifest.Files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name))
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(text[:f.Bytes]) {
			var m struct {
				Type, From, To string
				Object         object
			}
			if err := json.Unmarshal(line, &m); err != nil {
				return nil, err
			}
			switch m.Type {
			case "GAP":
				from, _ := strconv.ParseInt(m.From, 10, 64)
				to, _ := strconv.ParseInt(m.To, 10, 64)
				w.gaps = append(w.gaps, gap{from, to})
			case "ADDED", "MODIFIED", "DELETED":
				w.add(m.Type, m.Object)
			}
		}
	}
	return w, nil
}

// otel returns OpenTelemetry's receiver k8sobjects, in the mode watch, with a file that it continues after a restart.
// With checkpoints, it stores the revision that it has reached.
func otel(tb testing.TB, program, kubeconfig string, checkpoints bool) *tool {
	dir := tb.TempDir()
	out, config := filepath.Join(dir, "out"), filepath.Join(dir, "config.yaml")
	name, storage, extension := "OpenTelemetry k8sobjects, file exporter", "", ""
	if checkpoints {
		name = "… with checkpoints in file_storage"
		storage = "\n    storage: file_storage"
		extension = fmt.Sprintf("\nextensions:\n  file_storage: {directory: %q, fsync: true}", dir)
	}
	text := fmt.Sprintf(`
receivers:
  k8sobjects:
    auth_type: kubeConfig%s
    objects: [{name: events, mode: watch, namespaces: [%s]}]
exporters:
  file: {path: %q, append: true}%s
service:
  telemetry: {metrics: {level: none}}
  extensions: [%s]
  pipelines:
    logs: {receivers: [k8sobjects], exporters: [file]}
`, storage, namespace, out, extension, strings.TrimPrefix(strings.TrimSpace(storage), "storage: "))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return &tool{
		name: name,
		command: peer.Command{Path: program, Log: filepath.Join(dir, "log"), Args: []string{"--config", "file:" + config},
			Env: []string{"KUBECONFIG=" + kubeconfig}},
		read: func() (*written, error) { return readOTel(out) },
	}
}

// value is a value of OTLP as JSON.
type value struct {
	StringValue string
	KVListValue struct {
		Values []struct {
			Key   string
			Value value
		}
	}
}

func (v value) get(key string) value {
	for _, e := range v.KVListValue.Values {
		if e.Key == key {
			return e.Value
		}
	}
	return value{}
}

// readOTel reads lines of OTLP. A kill may have torn a line.
func readOTel(file string) (*written, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	w := newWritten()
	for line := range bytes.Lines(text) {
		var logs struct {
			ResourceLogs []struct {
				ScopeLogs []struct{ LogRecords []struct{ Body value } }
			}
		}
		if json.Unmarshal(line, &logs) != nil {
			continue
		}
		for _, resource := range logs.ResourceLogs {
			for _, scope := range resource.ScopeLogs {
				for _, record := range scope.LogRecords {
					var o object
					metadata := record.Body.get("object").get("metadata")
					o.Metadata.UID, o.Metadata.ResourceVersion = metadata.get("uid").StringValue,
						metadata.get("resourceVersion").StringValue
					w.add(record.Body.get("type").StringValue, o)
				}
			}
		}
	}
	return w, nil
}

// eventExporter returns kubernetes-event-exporter, a program that the flag names, with the receiver file. Events of any
// age are written, so that a restart need not lose one.
func eventExporter(tb testing.TB, program, kubeconfig string) *tool {
	dir := tb.TempDir()
	out, config := filepath.Join(dir, "out"), filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf(`
logLevel: warn
logFormat: json
maxEventAgeSeconds: 86400
namespace: %s
omitLookup: true
route: {routes: [{match: [{receiver: file}]}]}
receivers: [{name: file, file: {path: %q}}]
`, namespace, out)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return &tool{
		name: "kubernetes-event-exporter, file", onlyNew: true,
		command: peer.Command{Path: program, Log: filepath.Join(dir, "log"), Args: []string{"-conf", config, "-kubeconfig",
			kubeconfig, "-metrics-address", "127.0.0.1:0"}},
		read: func() (*written, error) { return readEventExporter(out) },
	}
}

// readEventExporter reads lines of Events. A kill may have torn a line.
func readEventExporter(file string) (*written, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	w := newWritten()
	for line := range bytes.Lines(text) {
		var o object
		if json.Unmarshal(line, &o) == nil && o.Metadata.UID != "" {
			w.add("ADDED", o)
		}
	}
	return w, nil
}
