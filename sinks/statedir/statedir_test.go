package statedir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keepwatch/keepwatch/sinks/statedir"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// receiver receives everything.
type receiver struct {
	name    string
	fail    error
	batches []sink.Batch
}

func (r *receiver) Open(context.Context, []sink.Stream, sink.Delivered) error { return r.fail }

func (r *receiver) Write(_ context.Context, batch sink.Batch) error {
	r.batches = append(r.batches, batch)
	return r.fail
}

func (r *receiver) Close() error   { return nil }
func (r *receiver) String() string { return r.name }

func streams(ids ...string) (all []sink.Stream) {
	for _, id := range ids {
		resource, namespace, _ := strings.Cut(id, "/")
		all = append(all, sink.Stream{ID: stream.Identity{Resource: resource, Namespace: namespace,
			Cluster: stream.Cluster{UID: "c"}}})
	}
	return all
}

// TestOpenErrors opens a directory that others have written to.
func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	first := statedir.New(dir, &receiver{name: "files:/a"})
	if _, err := first.Open(t.Context(), streams("pods", "services/shop")); err != nil {
		t.Fatal(err)
	}
	refused := func(want, name string, ids ...string) {
		t.Helper()
		s := statedir.New(dir, &receiver{name: name})
		_, err := s.Open(t.Context(), streams(ids...))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) ||
			errors.As(err, new(*sink.Unavailable)) {
			t.Errorf("got %v, want %q", err, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	refused("is in use by another keepwatch", "files:/a", "pods")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	refused("belongs to files:/a, not to files:/b", "files:/b", "pods")
	refused("services: it has these objects already, of another choice of namespaces", "files:/a", "services")
	refused("pods: it has these objects already, of another choice of namespaces", "files:/a", "pods/shop")
	all, err := first.Status(t.Context())
	if err != nil || len(all) != 2 || all[0].ID.Resource != "pods" || !all[0].Active || !all[1].Active {
		t.Errorf("%+v, %v", all, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pods", "stream.db"), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("is damaged", "files:/a", "pods")
	if err := os.WriteFile(filepath.Join(dir, "sync.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("sync.json is damaged", "files:/a", "pods")
	if _, err := first.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "sync.json is damaged") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sync.json"), []byte(`{"format":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("has format 2, and this keepwatch reads format 1", "files:/a", "pods")
}

// TestClusters opens a directory for several clusters.
func TestClusters(t *testing.T) {
	sinktest.TestClusters(t, statedir.New(t.TempDir(), &receiver{name: "r"}))
}

// TestDeletedState deletes the state of one stream: its objects are not delivered anew without a word.
func TestDeletedState(t *testing.T) {
	dir := t.TempDir()
	s := statedir.New(dir, &receiver{name: "r"})
	reopen := func(ids ...string) error {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := s.Open(t.Context(), streams(ids...))
		return err
	}
	if err := reopen("pods", "services"); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), sink.Batch{Pieces: []sink.Piece{
		{Stream: 0, After: sink.Progress{Cursor: 9, Since: 7}},
		{Stream: 1, After: sink.Progress{}}, // a page of its first list
	}}); err != nil {
		t.Fatal(err)
	}
	if err := reopen("pods", "services"); err != nil {
		t.Errorf("a process that was killed before its states were written: %v", err)
	}
	delivered := sink.Batch{Pieces: []sink.Piece{{After: sink.Progress{Cursor: 9, Since: 7}}}}
	for _, row := range [][2]string{{"services", ""}, {"pods", "has lost the state of pods, which was delivered up to revision 9"}} {
		resource, want := row[0], row[1]
		if err := s.Write(t.Context(), delivered); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, resource)); err != nil {
			t.Fatal(err)
		}
		err := reopen("pods", "services")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("without the state of %s: %v, want %q", resource, err, want)
		}
	}
}

// TestLongNames opens streams whose names together are longer than the name of a directory.
func TestLongNames(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("widgets.", 31) + "com" // 251 bytes
	s := statedir.New(dir, &receiver{name: "r"})
	for range 2 {
		if _, err := s.Open(t.Context(), streams(long+"/shop", long+"/bank", "x"+long, "pods/shop")); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"x" + long, "pods_shop"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// A record that cannot be written is said once.
func TestRecordIsNotWritten(t *testing.T) {
	dir := t.TempDir()
	s := statedir.New(dir, &receiver{name: "r"})
	if _, err := s.Open(t.Context(), streams("pods")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	inTheWay := filepath.Join(dir, "sync.json.new")
	if err := os.MkdirAll(filepath.Join(inTheWay, "file"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), streams("pods")); err == nil || strings.Count(err.Error(), inTheWay) != 1 {
		t.Errorf("opened with %v", err)
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), streams("pods")); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestReceiverFails checks that an error of the receiver passes, and that the directory can be opened again.
func TestReceiverFails(t *testing.T) {
	r := &receiver{name: "r", fail: sink.Unavailablef("down")}
	dir := t.TempDir()
	s := statedir.New(dir, r)
	if _, err := s.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "no sync has written to it") {
		t.Error(err)
	}
	for range 2 {
		if _, err := s.Open(t.Context(), streams("pods")); !errors.As(err, new(*sink.Unavailable)) {
			t.Fatal(err)
		}
	}
	r.fail = nil
	stored, err := s.Open(t.Context(), streams("pods"))
	if err != nil || len(stored) != 1 || stored[0].Progress != (sink.Progress{}) || stored[0].Count() != 0 {
		t.Fatalf("%+v, %v", stored, err)
	}
	r.fail = syscall.ENOSPC
	if err := s.Write(t.Context(), sink.Batch{}); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	_, err = s.Open(t.Context(), streams("pods"))
	if err == nil || !strings.Contains(err.Error(), "was deleted or replaced while it was in use") {
		t.Errorf("a directory that was deleted before another attempt: %v", err)
	}
}

// TestStateOfOneStream opens a directory that one stream had for itself.
func TestStateOfOneStream(t *testing.T) {
	dir := t.TempDir()
	id := streams("pods/shop")[0].ID
	state, err := stream.Open(dir, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, "stream.db"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = statedir.New(dir, &receiver{name: "keepwatch watch"}).Open(t.Context(), streams("services"))
	if err == nil ||
		!strings.Contains(err.Error(), "belongs to another stream: it has the state of pods in namespace shop") {
		t.Error(err)
	}
	_, err = statedir.New(dir, &receiver{name: "files:/a"}).Open(t.Context(), streams("pods/shop"))
	if err == nil || !strings.Contains(err.Error(), "belongs to keepwatch watch, not to files:/a") {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("refused, it has %v, %v, want the state and the lock", entries, err)
	}
	index := func() string { // an empty state has none, which says that it was found
		t.Helper()
		_, err := statedir.OpenIndex(dir, id)
		return fmt.Sprint(err)
	}
	if err := index(); !strings.Contains(err, "its first list is not complete") {
		t.Error(err)
	}
	for range 2 { // the second time, it is as every other one
		s := statedir.New(dir, &receiver{name: "keepwatch watch"})
		if _, err := s.Open(t.Context(), streams("services", "pods/shop")); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := index(); !strings.Contains(err, "its first list is not complete") {
		t.Error(err)
	}
	if _, err := statedir.OpenIndex(dir, streams("nodes")[0].ID); err == nil ||
		!strings.Contains(err.Error(), "has no state of nodes in all namespaces") {
		t.Error(err)
	}
	if after, err := os.ReadFile(filepath.Join(dir, "pods_shop", "stream.db")); err != nil || !bytes.Equal(after, before) {
		t.Errorf("its state differs, %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "stream.db")); !os.IsNotExist(err) {
		t.Errorf("it is there still: %v", err)
	}
}
