package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// severalFold is what a consumer of several types computes from the lines of a file.
type severalFold struct {
	objects map[string]string // names by resource and UID
	synced  [][]string        // the resources of each SYNCED
	gaps    []string
	problem string
}

// foldSeveral folds the lines of a file. An incomplete line is ignored.
func foldSeveral(t *testing.T, name string) *severalFold {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f := &severalFold{objects: map[string]string{}}
	seen := map[string]bool{}
	for l := range bytes.Lines(text) {
		var line struct {
			Type, ID, Resource, Reason string
			Resources                  []string
			Count                      int
			Object                     struct{ Metadata struct{ Name string } }
		}
		if json.Unmarshal(l, &line) != nil || line.ID != "" && seen[line.ID] {
			continue
		}
		seen[line.ID] = true
		uid, _, _ := strings.Cut(line.ID, "/")
		switch key := line.Resource + " " + uid; line.Type {
		case "ADDED", "MODIFIED":
			f.objects[key] = line.Resource + " " + line.Object.Metadata.Name
		case "DELETED":
			delete(f.objects, key)
		case "SYNCED":
			f.synced = append(f.synced, line.Resources)
			if line.Count != len(f.objects) {
				f.problem = "SYNCED counts other objects: " + string(l)
			}
		case "GAP":
			f.gaps = append(f.gaps, line.Resource+" "+line.Reason)
		}
	}
	return f
}

func (f *severalFold) names() []string { return slices.Sorted(maps.Values(f.objects)) }

var fourNamespaces = []string{"namespaces default", "namespaces kube-node-lease", "namespaces kube-public",
	"namespaces kube-system"}

// TestWatchSeveral prints two types, ends in three ways, and resumes.
func TestWatchSeveral(t *testing.T) {
	parallel(t)
	client, _ := newCluster(t)
	dir := t.TempDir()
	file, state := filepath.Join(dir, "out"), filepath.Join(dir, "state")
	out := appending(t, file)
	args := []string{"namespaces,configmaps", "-A", "--state", state}
	both := []string{"namespaces", "configmaps"}
	configMap(t, client, "several-one", "x")
	p := startWatch(t, out, args...)
	becomes := func(synced int, more ...string) {
		t.Helper()
		want := slices.Sorted(slices.Values(append(slices.Clone(fourNamespaces), more...)))
		defer func() {
			if f := foldSeveral(t, file); t.Failed() {
				t.Errorf("got %q and %q, want %q; stderr %s", f.names(), f.synced, want, p.stderr)
			}
		}()
		waitFor(t, func() bool {
			f := foldSeveral(t, file)
			return slices.Equal(f.names(), want) && len(f.synced) >= synced
		})
	}
	becomes(1, "configmaps several-one")
	configMap(t, client, "several-two", "x")
	becomes(1, "configmaps several-one", "configmaps several-two")
	if code, _, stderr := execute(t, append([]string{"watch"}, args...)...); code != 1 ||
		!strings.Contains(stderr, "is in use by another keepwatch") {
		t.Errorf("a second one: exit %d, %q", code, stderr)
	}
	p.Process.Kill()
	<-p.ended
	if _, err := out.WriteString(`{"type":"ADD`); err != nil {
		t.Fatal(err)
	}
	deleteConfigMap(t, client, "several-one")
	p = startWatch(t, out, args...)
	becomes(2, "configmaps several-two")
	p.Process.Signal(os.Interrupt)
	if code := p.exit(t); code != 130 || p.stderr.String() != "" {
		t.Errorf("after SIGINT: exit %d, stderr %q", code, p.stderr)
	}
	deleteConfigMap(t, client, "several-two")
	p = startWatch(t, out, append(args, "--until-synced")...)
	if code := p.exit(t); code != 0 || p.stderr.String() != "" {
		t.Errorf("until synced: exit %d, stderr %q", code, p.stderr)
	}
	becomes(3)
	f := foldSeveral(t, file)
	if f.problem != "" || len(f.gaps) > 0 || slices.ContainsFunc(f.synced, func(s []string) bool {
		return !slices.Equal(s, both)
	}) {
		t.Errorf("%s, gaps %q, SYNCED of %q", f.problem, f.gaps, f.synced)
	}

	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"namespaces,configmaps", "-A", "-l", "a=b", "--state", state}, "belongs to another stream"},
		{[]string{"namespaces,configmaps", "-n", "default", "--state", state}, "of another choice of namespaces"},
	} {
		if code, stdout, stderr := execute(t, append([]string{"watch", "--until-synced"}, tt.args...)...); code != 1 ||
			stdout != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("%v: exit %d, %q, %q", tt.args, code, stdout, stderr)
		}
	}
	// A type may be left out, and continues when it is given again.
	for _, types := range []string{"namespaces", "namespaces,configmaps"} {
		code, stdout, stderr := execute(t, "watch", types, "-A", "--until-synced", "--state", state)
		if code != 0 || strings.Count(stdout, "\n") != 1 || stderr != "" {
			t.Errorf("%s: exit %d, %s, %s", types, code, stdout, stderr)
		}
	}
	code, stdout, stderr := execute(t, "watch", "namespaces,configmaps", "-A", "--until-synced", "-o", "name")
	if lines := strings.Split(stdout, "\n"); code != 0 || !slices.Contains(lines, "namespace/default") ||
		!strings.Contains(stderr, "synced at ") {
		t.Errorf("exit %d, %s, %s", code, stdout, stderr)
	}
}

// TestWatchTypes prints types that appear and disappear.
func TestWatchTypes(t *testing.T) {
	parallel(t)
	s := newTypesServer(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "out")
	p := startWatch(t, appending(t, file), "namespaces,*.example.com", "-A", "--state", filepath.Join(dir, "state"))
	becomes := func(resources []string, more ...string) {
		t.Helper()
		want := slices.Sorted(slices.Values(append(slices.Clone(fourNamespaces), more...)))
		defer func() {
			if f := foldSeveral(t, file); t.Failed() {
				t.Errorf("got %q and %q, want %q; stderr %s", f.names(), f.synced, want, p.stderr)
			}
		}()
		waitFor(t, func() bool {
			f := foldSeveral(t, file)
			return f.problem == "" && slices.Equal(f.names(), want) && len(f.synced) > 0 &&
				slices.Equal(f.synced[len(f.synced)-1], resources)
		})
	}
	becomes([]string{"namespaces"})
	s.define("widgets", "v1")
	s.create("widgets", "v1", "one")
	becomes([]string{"namespaces", "widgets.example.com"}, "widgets.example.com one")
	p.Process.Kill()
	<-p.ended
	s.undefine("widgets")
	p = startWatch(t, appending(t, file), "namespaces,*.example.com", "-A", "--state", filepath.Join(dir, "state"))
	becomes([]string{"namespaces"})
	if f := foldSeveral(t, file); !slices.Equal(f.gaps, []string{"widgets.example.com expired"}) {
		t.Errorf("gaps: %q", f.gaps)
	}
}
