package files_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/files"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// manifest is what a reader needs of the manifest.
type manifest struct {
	Files []struct {
		Name   string
		Bytes  int64
		Lines  int
		Closed bool
	}
	Streams []struct {
		Resource string
		Cursor   keepwatch.Revision
	}
}

// readManifest reads the manifest, which may not exist yet.
func readManifest(dir string) (m manifest, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, err
}

// readAll returns the lines of a directory, as a reader sees them that believes the manifest.
func readAll(dir string) (text []byte, err error) { return readAfter(dir, 0) }

// readAfter is readAll without the first lines. It does not open a file that has only these.
func readAfter(dir string, lines int) (text []byte, err error) {
	for {
		m, err := readManifest(dir)
		if err != nil {
			return nil, err
		}
		skip := lines
		for len(m.Files) > 0 && m.Files[0].Lines <= skip {
			skip -= m.Files[0].Lines
			m.Files = m.Files[1:]
		}
		text, err = readFiles(dir, m)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the file was compressed meanwhile
		}
		for range min(skip, bytes.Count(text, []byte("\n"))) {
			text = text[bytes.IndexByte(text, '\n')+1:]
		}
		return text, err
	}
}

func readFiles(dir string, m manifest) (text []byte, err error) {
	for _, f := range m.Files {
		part, err := readFile(filepath.Join(dir, f.Name), f.Bytes)
		if err != nil {
			return nil, err
		}
		if n := bytes.Count(part, []byte("\n")); n != f.Lines || n > 0 && part[len(part)-1] != '\n' {
			return nil, fmt.Errorf("%s has %d lines, not %d, and ends in %q", f.Name, n, f.Lines, part[max(0, len(part)-20):])
		}
		text = append(text, part...)
	}
	return text, nil
}

// readFile returns the plain text of the first bytes of a file.
func readFile(path string, size int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := io.LimitReader(f, size)
	switch filepath.Ext(path) {
	case ".gz":
		if in, err = gzip.NewReader(in); err != nil {
			return nil, err
		}
	case ".zst":
		d, err := zstd.NewReader(in)
		if err != nil {
			return nil, err
		}
		defer d.Close()
		in = d
	}
	return io.ReadAll(in)
}

// thing is an object with a body.
type thing struct {
	name     string
	revision keepwatch.Revision
}

func (o thing) Key() keepwatch.Key           { return keepwatch.Key{Namespace: "ns", Name: o.name} }
func (o thing) UID() keepwatch.UID           { return keepwatch.UID("uid-" + o.name) }
func (o thing) Revision() keepwatch.Revision { return o.revision }
func (o thing) JSON() []byte                 { return fmt.Appendf(nil, `{"name":%q}`, o.name) }
func (o thing) Metadata() []byte             { return o.JSON() }

var pods = []sink.Stream{{ID: stream.Identity{Resource: "pods"}}}

// begun is the time of the first batch.
var begun = time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC)

// batch returns a batch of n events up to a revision, at so many minutes.
func batch(n int, to keepwatch.Revision, minutes int) sink.Batch {
	p := sink.Piece{After: sink.Progress{Cursor: to, Since: 1}}
	for i := range n {
		o := thing{fmt.Sprint("o-", i), to}
		p.Messages = append(p.Messages, stream.Event{Type: keepwatch.Modified, Revision: to, ID: fmt.Sprintf("uid-%s/%d",
			o.name, to), Object: o})
	}
	return sink.Batch{Time: begun.Add(time.Duration(minutes) * time.Minute), Pieces: []sink.Piece{p}}
}

func open(t *testing.T, d *files.Directory, cursor keepwatch.Revision) {
	t.Helper()
	if err := d.Open(t.Context(), pods, sink.Delivered{State: "s",
		Progress: []sink.Progress{{Cursor: cursor}}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
}

func write(t *testing.T, d *files.Directory, batches ...sink.Batch) {
	t.Helper()
	for _, b := range batches {
		if err := d.Write(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
}

// names returns the names of the files in a directory and in its manifest.
func names(t *testing.T, dir string) (found, listed []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "lock" && e.Name() != "manifest.json" {
			found = append(found, e.Name())
		}
	}
	m, err := readManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Files {
		listed = append(listed, f.Name)
	}
	return found, listed
}

// TestRotation closes files by size and by age, with each compression, and deletes a closed one.
func TestRotation(t *testing.T) {
	for name, suffix := range map[string]string{"none": "", "gzip": ".gz", "zstd": ".zst"} {
		t.Run(name, func(t *testing.T) {
			compression, err := files.ParseCompression(name)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			d := files.New(dir, files.Options{MaxSize: 500, MaxAge: time.Hour, Compression: compression})
			open(t, d, 0)
			write(t, d, batch(10, 5, 0), batch(1, 6, 1), batch(1, 7, 50), batch(1, 8, 61), batch(0, 9, 62))
			want := []string{"0000000001.ndjson" + suffix, "0000000002.ndjson" + suffix, "0000000003.ndjson"}
			found, listed := names(t, dir)
			if !slices.Equal(found, want) || !slices.Equal(listed, want) {
				t.Fatalf("got %q and %q, want %q", found, listed, want)
			}
			text, err := readAll(dir)
			if err != nil || bytes.Count(text, []byte("\n")) != 13 ||
				!strings.HasSuffix(string(text), `"id":"uid-o-0/8","resource":"pods","object":{"name":"o-0"}}`+"\n") {
				t.Errorf("%s, %v", text, err)
			}
			if m, err := readManifest(dir); err != nil || len(m.Streams) != 1 || m.Streams[0].Cursor != 9 {
				t.Errorf("%+v, %v", m, err)
			}
			// A reader has read the first file and deleted it; the numbers continue.
			if err := os.Remove(filepath.Join(dir, want[0])); err != nil {
				t.Fatal(err)
			}
			write(t, d, batch(1, 10, 200))
			if _, listed = names(t, dir); !slices.Equal(listed, []string{want[1], "0000000003.ndjson" + suffix,
				"0000000004.ndjson"}) {
				t.Errorf("listed: %q", listed)
			}
		})
	}
}

// TestClockSetBack closes a file that was created while the clock was ahead: its age is not known.
func TestClockSetBack(t *testing.T) {
	dir := t.TempDir()
	d := files.New(dir, files.Options{MaxAge: time.Hour})
	open(t, d, 0)
	write(t, d, batch(1, 5, 365*24*60))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, d, 5)
	write(t, d, batch(1, 6, 0), batch(1, 7, 1))
	if found, _ := names(t, dir); !slices.Equal(found, []string{"0000000001.ndjson", "0000000002.ndjson"}) {
		t.Errorf("got %q", found)
	}
}

// TestCrash cuts off what is behind the manifest: a part of a batch, a new file, and a compression that did not end.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	d := files.New(dir, files.Options{Compression: files.Zstd, MaxSize: 1})
	open(t, d, 0)
	write(t, d, batch(2, 5, 0), batch(2, 6, 1))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := readAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	current := filepath.Join(dir, "0000000002.ndjson")
	f, err := os.OpenFile(current, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"type":"ADDED","revis`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, name := range []string{"0000000003.ndjson", "0000000001.ndjson", "0000000002.ndjson.zst", "manifest.json.new",
		"mine.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("torn"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := readAll(dir); err != nil || !bytes.Equal(text, before) {
		t.Errorf("a reader sees %s, %v", text, err)
	}
	d = files.New(dir, files.Options{})
	open(t, d, 6)
	write(t, d, batch(1, 7, 2))
	found, _ := names(t, dir)
	if want := []string{"0000000001.ndjson.zst", "0000000002.ndjson", "mine.txt"}; !slices.Equal(found, want) {
		t.Errorf("got %q, want %q", found, want)
	}
	text, err := readAll(dir)
	if err != nil || !bytes.HasPrefix(text, before) || bytes.Count(text, []byte("\n")) != 5 {
		t.Errorf("%s, %v", text, err)
	}
	if whole, err := os.ReadFile(current); err != nil || bytes.Contains(whole, []byte("revis\n")) ||
		!bytes.HasSuffix(text, whole) {
		t.Errorf("the file is %s, %v", whole, err)
	}
}

// TestRefused opens directories that are not what was delivered, or that somebody else uses.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	d := files.New(dir, files.Options{})
	open(t, d, 0)
	write(t, d, batch(2, 5, 0))
	refused := func(dir, want string, delivered sink.Delivered) {
		t.Helper()
		d := files.New(dir, files.Options{})
		err := d.Open(context.Background(), pods, delivered)
		if err == nil || !strings.Contains(err.Error(), want) || errors.As(err, new(*sink.Unavailable)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	at := func(cursor keepwatch.Revision) sink.Delivered {
		return sink.Delivered{State: "s", Progress: []sink.Progress{{Cursor: cursor}}}
	}
	refused(t.TempDir(), "is empty, and objects were delivered to it", sink.Delivered{State: "s",
		Progress: make([]sink.Progress, 1), Objects: 3})
	refused(dir, "is in use by another keepwatch sync", at(5))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	refused(dir, "have pods up to revision 5, and 6 was delivered: lines are missing", at(6))
	refused(dir, "are those of another state directory", sink.Delivered{State: "new", Progress: make([]sink.Progress, 1)})
	current := filepath.Join(dir, "0000000001.ndjson")
	if err := os.Truncate(current, 10); err != nil {
		t.Fatal(err)
	}
	refused(dir, "has 10 bytes, and ", at(5))
	if err := os.Remove(current); err != nil {
		t.Fatal(err)
	}
	refused(dir, "0000000001.ndjson is missing", at(5))
	path := filepath.Join(dir, "manifest.json")
	for text, want := range map[string]string{"{": "manifest.json is damaged", `{"format":7}`: "has format 7"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(dir, want, at(5))
	}
	if err := errors.Join(os.Remove(path), os.WriteFile(current, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	refused(dir, "has 0000000001.ndjson and no manifest.json", at(5))
	refused(filepath.Join(current, "x"), "not a directory", at(5))
	if _, err := files.ParseCompression("lz4"); err == nil || !strings.Contains(err.Error(), "none, gzip or zstd") {
		t.Error(err)
	}
}

// TestRewind opens files that have the end of a rewind, which was not committed, and those that lack it.
func TestRewind(t *testing.T) {
	before := sink.Progress{Cursor: 9, Since: 1, Epoch: 1, Gap: keepwatch.GapRewind}
	after := sink.Progress{Cursor: 5, Since: 5, Epoch: 1}
	for _, row := range []struct {
		written, delivered sink.Progress
		refused            bool
	}{{before, before, false}, {after, before, false}, {after, after, false}, {before, after, true}} {
		dir := t.TempDir()
		d := files.New(dir, files.Options{})
		open(t, d, 0)
		b := batch(1, 5, 0)
		b.Pieces[0].After = row.written
		write(t, d, b)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		err := d.Open(t.Context(), pods, sink.Delivered{State: "s", Progress: []sink.Progress{row.delivered}})
		if refused := err != nil && strings.Contains(err.Error(), "lines are missing"); refused != row.refused || !refused &&
			err != nil {
			t.Errorf("files with %+v, after %+v was delivered: %v", row.written, row.delivered, err)
		}
	}
}

// TestDeleted deletes the current file while it is written.
func TestDeleted(t *testing.T) {
	dir := t.TempDir()
	d := files.New(dir, files.Options{})
	open(t, d, 0)
	write(t, d, batch(2, 5, 0))
	if err := os.Remove(filepath.Join(dir, "0000000001.ndjson")); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(t.Context(), batch(1, 6, 1)); err == nil ||
		!strings.Contains(err.Error(), "was deleted or replaced while it was in use") {
		t.Error(err)
	}
}
