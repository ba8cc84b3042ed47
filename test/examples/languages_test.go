package examples

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/test/peer"
)

// languages are the programs of examples/languages, each with what runs it.
var languages = []struct {
	name, source string
	needs        string
	command      func(source, dir string) []string
}{
	{"Python", "fold.py", "python3", func(source, _ string) []string { return []string{"python3", source} }},
	{"JavaScript", "fold.mjs", "node", func(source, _ string) []string { return []string{"node", source} }},
	{"Java", "Fold.java", "javac", func(source, _ string) []string { return []string{"java", source} }},
	{"Rust", "fold.rs", "rustc", func(_, dir string) []string { return []string{filepath.Join(dir, "fold")} }},
	{"bash", "fold.sh", "bash", func(source, _ string) []string { return []string{"bash", source} }},
	{"Elixir", "fold.exs", "elixir", func(source, _ string) []string { return []string{"elixir", source} }},
}

// TestPrintedFold checks that docs/watch.md has the program in Python.
func TestPrintedFold(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/watch.md"))
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join(root, "examples/languages/fold.py"))
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for line := range strings.Lines(string(program)) {
		if line != "\n" {
			want.WriteString("    ")
		}
		want.WriteString(line)
	}
	if !strings.Contains(string(page), want.String()) {
		t.Errorf("docs/watch.md does not have this program:\n%s", want.String())
	}
}

// TestLanguages kills keepwatch watch, and the programs that fold its lines, while objects change. Each program's state
// is then the server's.
func TestLanguages(t *testing.T) {
	r := newReader(t)
	r.Cleanup(r.cleanMaps)
	f := &folding{reader: r, dir: t.TempDir()}
	f.log = filepath.Join(f.dir, "log")
	f.follow()
	for _, l := range languages {
		f.program(l.name, l.source, l.needs, l.command)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 4 {
		for range 25 {
			f.change(random)
		}
		switch round {
		case 0:
			f.written(f.log)
			f.keepwatch.Kill()
			f.tear()
		case 1:
			f.follow()
			for _, p := range f.programs {
				f.written(p.state)
				p.process.Kill()
			}
		case 2:
			for _, p := range f.programs {
				p.start()
			}
			f.keepwatch.Kill()
			f.follow()
		}
	}
	for _, p := range f.programs {
		r.eventually("the state of "+p.name+" is the server's", func() (bool, string) {
			got, want := p.folded(), f.served()
			return maps.Equal(got, want), fmt.Sprintf("%v\nwant %v", got, want)
		})
	}
}

// folding is the programs that read one file of lines.
type folding struct {
	*reader
	dir, log  string
	keepwatch *peer.Process
	programs  []*folder
	number    int
}

// folder is one of the programs.
type folder struct {
	*folding
	name    string
	command []string
	state   string
	process *peer.Process
}

// follow starts keepwatch watch, which appends to the log.
func (f *folding) follow() {
	f.Helper()
	out, err := os.OpenFile(f.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		f.Fatal(err)
	}
	defer out.Close()
	f.keepwatch = f.run(peer.Command{
		Path: peer.Keepwatch(f), Stdout: out, Log: filepath.Join(f.dir, "keepwatch.log"), Args: []string{
			"watch", "configmaps,widgets.example.com", "-A", "--state", filepath.Join(f.dir, "state"), "--kubeconfig",
			f.server.Kubeconfig(),
		},
	})
}

func (f *folding) run(c peer.Command) *peer.Process {
	f.Helper()
	p, err := peer.Start(c)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(p.Kill)
	return p
}

// written waits until a file is not empty.
func (f *folding) written(path string) {
	f.Helper()
	f.eventually(path+" is written", func() (bool, string) {
		info, err := os.Stat(path)
		return err == nil && info.Size() > 0, fmt.Sprint(err)
	})
}

// program starts the program of a language. It skips a language that this machine does not have.
func (f *folding) program(name, source, needs string, command func(source, dir string) []string) {
	f.Helper()
	if _, err := exec.LookPath(needs); err != nil {
		f.Run(name, func(t *testing.T) {
			t.Skipf("examples/languages/%s does not run: no %s on this machine", source, needs)
		})
		return
	}
	path, err := filepath.Abs(filepath.Join(root, "examples/languages", source))
	if err != nil {
		f.Fatal(err)
	}
	if needs == "rustc" {
		if out, err := exec.CommandContext(f.Context(), "rustc", "-o", filepath.Join(f.dir, "fold"),
			path).CombinedOutput(); err != nil {
			f.Fatalf("rustc: %v\n%s", err, out)
		}
	}
	p := &folder{folding: f, name: name, command: command(path, f.dir), state: filepath.Join(f.dir, "state."+name)}
	f.programs = append(f.programs, p)
	p.start()
}

func (p *folder) start() {
	p.Helper()
	path, err := exec.LookPath(p.command[0])
	if err != nil {
		p.Fatal(err)
	}
	log := filepath.Join(p.dir, p.name+".log")
	p.process = p.run(peer.Command{Path: path, Args: append(slices.Clone(p.command[1:]), p.log, p.state), Log: log})
	p.Cleanup(func() {
		if text, err := os.ReadFile(log); p.Failed() {
			p.Logf("%s printed %s (%v)", p.name, text, err)
		}
	})
}

// tear appends a part of a line, as a process leaves it that is killed while it writes.
func (f *folding) tear() {
	f.Helper()
	out, err := os.OpenFile(f.log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		f.Fatal(err)
	}
	defer out.Close()
	if _, err := out.WriteString(
		`{"type":"ADDED","revision":"9","id":"torn/9","resource":"configmaps","object":{"metadata":{"na`); err != nil {
		f.Fatal(err)
	}
}

// change creates, changes or deletes a ConfigMap or a widget.
func (f *folding) change(random *rand.Rand) {
	f.Helper()
	f.number++
	objects, body := f.client.Resource(configMaps).Namespace("default"), map[string]any{"apiVersion": "v1",
		"kind": "ConfigMap", "data": map[string]any{"text": "\"}}\n é 漢"}}
	if random.IntN(3) == 0 {
		objects, body = f.widgets(), map[string]any{"apiVersion": "example.com/v1", "kind": "Widget",
			"spec": map[string]any{"size": int64(1)}}
	}
	list, err := objects.List(f.Context(), metav1.ListOptions{LabelSelector: "languages"})
	if err != nil {
		f.Fatal(err)
	}
	switch n := random.IntN(10); {
	case n < 5 || len(list.Items) == 0:
		body["metadata"] = map[string]any{"name": fmt.Sprint("languages-", f.number),
			"labels": map[string]any{"languages": "0"}}
		_, err = objects.Create(f.Context(), &unstructured.Unstructured{Object: body}, metav1.CreateOptions{})
	case n < 8:
		o := &list.Items[random.IntN(len(list.Items))]
		o.SetLabels(map[string]string{"languages": fmt.Sprint(f.number)})
		_, err = objects.Update(f.Context(), o, metav1.UpdateOptions{})
	default:
		err = objects.Delete(f.Context(), list.Items[random.IntN(len(list.Items))].GetName(), metav1.DeleteOptions{})
	}
	if err != nil {
		f.Fatal(err)
	}
}

// cleanMaps deletes the ConfigMaps of the test.
func (r *reader) cleanMaps() {
	all := metav1.ListOptions{LabelSelector: "languages"}
	if err := r.client.Resource(configMaps).Namespace("default").DeleteCollection(context.Background(),
		metav1.DeleteOptions{}, all); err != nil {
		r.Logf("the ConfigMaps of the test stay: %v", err)
	}
}

// served returns the resource version of each object on the server, by resource and UID.
func (f *folding) served() map[string]string {
	f.Helper()
	versions := map[string]string{}
	for name, resource := range map[string]func() (*unstructured.UnstructuredList, error){
		"configmaps": func() (*unstructured.UnstructuredList, error) {
			return f.client.Resource(configMaps).List(f.Context(), metav1.ListOptions{})
		},
		"widgets.example.com": func() (*unstructured.UnstructuredList, error) {
			return f.client.Resource(widgets).List(f.Context(), metav1.ListOptions{})
		},
	} {
		list, err := resource()
		if err != nil {
			f.Fatal(err)
		}
		for _, o := range list.Items {
			versions[name+" "+string(o.GetUID())] = o.GetResourceVersion()
		}
	}
	return versions
}

// folded returns the same of the program's state.
func (p *folder) folded() map[string]string {
	p.Helper()
	text, err := os.ReadFile(p.state)
	if err != nil {
		return nil // it was not written yet
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if _, err := strconv.Atoi(lines[0]); err != nil {
		p.Fatalf("the state of %s begins with %q", p.name, lines[0])
	}
	versions := map[string]string{}
	for _, line := range lines[1:] {
		var event struct {
			Resource string
			Object   unstructured.Unstructured
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			p.Fatalf("%s stores the line %q: %v", p.name, line, err)
		}
		versions[event.Resource+" "+string(event.Object.GetUID())] = event.Object.GetResourceVersion()
	}
	return versions
}
