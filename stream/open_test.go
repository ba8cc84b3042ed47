package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

// fillState creates a state with n objects and one announcement.
func fillState(t *testing.T, dir string, n int) {
	t.Helper()
	d := openDisk(t, dir)
	x := newTestStream(t, d, Options{})
	var objects []string
	for i := range n {
		objects = append(objects, fmt.Sprintf("a%d.1@%d", i, i+1))
	}
	x.list(keepwatch.Relist{}, keepwatch.Revision(n), objects...)
	announced := []announcement{{1, intent{kind: keepwatch.Added, revision: 7, key: "default/x",
		record: recordOf(at("x.1@7"), 0, schema.GroupVersionKind{})}}}
	if err := d.announce(announced, 7); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenContinues(t *testing.T) {
	dir := t.TempDir()
	fillState(t, dir, 10)
	d := openDisk(t, dir)
	if p := d.position(); p.Cursor != 10 || p.Count != 10 {
		t.Errorf("position %+v", p)
	}
	r, ok, err := d.get("default/a3")
	if err != nil || !ok || r.uid != "a3.1" || r.revision != 4 || string(r.metadata) != string(at("a3.1@4").Metadata()) {
		t.Errorf("record %+v, %v, %v", r, ok, err)
	}
	if found, err := d.announced(); err != nil || len(found) != 1 || found[0].id() != "x.1/7" {
		t.Errorf("announced %v, %v", found, err)
	}
}

func TestOpenRefusesAnother(t *testing.T) {
	base := Identity{
		Cluster: Cluster{UID: "u-1", Server: "https://one"}, Resource: "pods",
		Namespace: "a", LabelSelector: "app=x", FieldSelector: "spec.nodeName=n",
	}
	with := func(change func(*Identity)) Identity {
		id := base
		change(&id)
		return id
	}
	tests := []struct {
		name string
		id   Identity
		want string // empty: accepted
	}{
		{"the same", base, ""},
		{"the same cluster by another address", with(func(i *Identity) { i.Cluster.Server = "https://two" }), ""},
		{"the UID can't be read now", with(func(i *Identity) { i.Cluster.UID = "" }), ""},
		{"another cluster at the same address", with(func(i *Identity) { i.Cluster.UID = "u-2" }), "u-2"},
		{"another address, and no UID", with(func(i *Identity) { i.Cluster = Cluster{Server: "https://two"} }),
			"https://two"},
		{"another resource", with(func(i *Identity) { i.Resource = "deployments.apps" }), "deployments.apps"},
		{"another namespace", with(func(i *Identity) { i.Namespace = "b" }), "in namespace b"},
		{"all namespaces", with(func(i *Identity) { i.Namespace = "" }), "in all namespaces"},
		{"other labels", with(func(i *Identity) { i.LabelSelector = "" }), "not of pods with fields"},
		{"other fields", with(func(i *Identity) { i.FieldSelector = "metadata.name=x" }), "metadata.name=x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := Open(dir, base)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			before := content(t, dir)
			s, err = Open(dir, tt.id)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				_ = s.Close()
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			for _, part := range []string{dir, base.String(), tt.want, "use another directory"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not contain %q", err, part)
				}
			}
			if !bytes.Equal(content(t, dir), before) {
				t.Error("the file was changed")
			}
		})
	}
}

// TestOpenUpdatesTheCluster checks that a state records a UID that could not be read at
// first, and a new address.
func TestOpenUpdatesTheCluster(t *testing.T) {
	dir := t.TempDir()
	open := func(c Cluster) error {
		s, err := Open(dir, Identity{Cluster: c, Resource: "pods"})
		if err != nil {
			return err
		}
		return s.Close()
	}
	for _, c := range []Cluster{{Server: "one"}, {"u-1", "one"}, {"u-1", "two"}, {"", "two"}} {
		if err := open(c); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
	for _, c := range []Cluster{{"u-2", "two"}, {"", "one"}} {
		if err := open(c); err == nil {
			t.Errorf("%v was accepted", c)
		}
	}
}

func TestOpenRefusesAStateInUse(t *testing.T) {
	dir := t.TempDir()
	d := openDisk(t, dir)
	_, err := Open(dir, testIdentity)
	if err == nil || err.Error() != "state directory "+dir+" is in use by another keepwatch" {
		t.Errorf("got %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	openDisk(t, dir)
}

// TestOpenAfterUnfinishedCreation opens a directory whose first process was killed before
// it renamed the new file.
func TestOpenAfterUnfinishedCreation(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, fileName+".new"), nil)
	d := openDisk(t, dir)
	if _, err := os.Stat(filepath.Join(dir, fileName+".new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file still has its first name: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	openDisk(t, dir)
}

// TestOpenCreatesOnce opens a new directory several times at once: one call succeeds.
func TestOpenCreatesOnce(t *testing.T) {
	dir := t.TempDir()
	got := make(chan State)
	for range 8 {
		go func() {
			s, err := Open(dir, testIdentity)
			if err != nil {
				t.Log(err)
			}
			got <- s
		}()
	}
	var open []State
	for range 8 {
		if s := <-got; s != nil {
			open = append(open, s)
		}
	}
	if len(open) != 1 {
		t.Errorf("%d calls of Open succeeded, want 1", len(open))
	}
	for _, s := range open {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenRefusesOtherFiles(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, path string)
		want string
	}{
		{"text", func(t *testing.T, path string) { write(t, path, bytes.Repeat([]byte("not a state file\n"), 5000)) },
			"is damaged"},
		{"a few bytes", func(t *testing.T, path string) { write(t, path, []byte("x")) }, "state file"},
		{"zeros", func(t *testing.T, path string) { write(t, path, make([]byte, 1<<16)) }, "is damaged"},
		{"nothing", func(t *testing.T, path string) { write(t, path, nil) }, "is damaged: it ends after 0 bytes"},
		{"the beginning", func(t *testing.T, path string) {
			fillState(t, filepath.Dir(path), 3)
			truncate(t, path, 6000)
		}, "is damaged: it ends after 6000 bytes"},
		{"a little more", func(t *testing.T, path string) {
			fillState(t, filepath.Dir(path), 1000)
			truncate(t, path, 4*4096+100)
		}, "is damaged: parts of it are missing or garbled"},
		{"another program's file", func(t *testing.T, path string) {
			edit(t, path, func(tx *bolt.Tx) error {
				_, err := tx.CreateBucket([]byte("theirs"))
				return err
			})
		}, "of another program"},
		{"a later format", func(t *testing.T, path string) {
			fillState(t, filepath.Dir(path), 3)
			edit(t, path, func(tx *bolt.Tx) error { return tx.Bucket(headBucket).Put(formatKey, []byte("3")) })
		}, `format "3"`},
		{"a missing record", func(t *testing.T, path string) {
			fillState(t, filepath.Dir(path), 3)
			edit(t, path, func(tx *bolt.Tx) error { return tx.Bucket(recordsBucket).Delete([]byte("default/a1")) })
		}, "it has 2 records, and 3 were written"},
		{"a missing bucket", func(t *testing.T, path string) {
			fillState(t, filepath.Dir(path), 3)
			edit(t, path, func(tx *bolt.Tx) error { return tx.DeleteBucket(intentsBucket) })
		}, "a part is missing"},
		{"the second half missing", func(t *testing.T, path string) {
			fillState(t, filepath.Dir(path), 1000)
			truncate(t, path, len(content(t, filepath.Dir(path)))/2)
		}, "is damaged"},
		{"a folder", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "is a directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, fileName)
			tt.make(t, path)
			before := content(t, dir)
			s, err := Open(dir, testIdentity)
			if err == nil {
				_ = s.Close()
				t.Fatal("accepted")
			}
			t.Log(err)
			if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%q does not contain %q", err, tt.want)
			}
			if !bytes.Equal(content(t, dir), before) {
				t.Error("the file was changed")
			}
		})
	}
}

// TestOpenAnyDamage changes one byte anywhere. A file that is opened all the same is
// complete.
func TestOpenAnyDamage(t *testing.T) {
	dir := t.TempDir()
	fillState(t, dir, 300)
	whole := content(t, dir)
	random := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 400 {
		damaged := bytes.Clone(whole)
		at := random.IntN(len(damaged))
		damaged[at] ^= byte(1 + random.IntN(255))
		write(t, filepath.Join(dir, fileName), damaged)
		s, err := Open(dir, testIdentity)
		if err != nil {
			refused++
			if !bytes.Equal(content(t, dir), damaged) {
				t.Fatalf("byte %d: refused (%v), but changed", at, err)
			}
			continue
		}
		if p := s.position(); p.Count != 300 || p.Cursor != 300 {
			t.Errorf("byte %d: opened at %+v", at, p)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d of 400 were refused", refused)
	if refused == 0 {
		t.Error("no damage was noticed")
	}
}

// TestStateFileRemovedInUse checks that writes fail if the next run would not find the file.
func TestStateFileRemovedInUse(t *testing.T) {
	for name, remove := range map[string]func(t *testing.T, dir string){
		"folder deleted": func(t *testing.T, dir string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		},
		"file deleted": func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, fileName)); err != nil {
				t.Fatal(err)
			}
		},
		"file replaced": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "copy"), content(t, dir))
			if err := os.Rename(filepath.Join(dir, "copy"), filepath.Join(dir, fileName)); err != nil {
				t.Fatal(err)
			}
		},
		"folder replaced": func(t *testing.T, dir string) {
			if err := os.Rename(dir, dir+".old"); err != nil {
				t.Fatal(err)
			}
			fillState(t, dir, 3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			d := openDisk(t, dir)
			if err := d.announce(nil, 1); err != nil {
				t.Fatal(err)
			}
			remove(t, dir)
			for what, err := range map[string]error{"announce": d.announce(nil, 2),
				"commit": d.commit(commit{position: d.committed}), "close": d.Close()} {
				if err == nil || !strings.Contains(err.Error(), "while it was in use: the cursor is lost") {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, path string, size int) {
	t.Helper()
	if err := os.Truncate(path, int64(size)); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, dir string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil && !strings.Contains(err.Error(), "is a directory") {
		t.Fatal(err)
	}
	return text
}

func edit(t *testing.T, path string, change func(*bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(change); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
