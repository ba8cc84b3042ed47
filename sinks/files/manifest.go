package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/keepwatch/keepwatch/internal/durable"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

const (
	manifestName = "manifest.json"
	// format is the version of the directory.
	format = 1
)

// manifest is the content of manifest.json.
type manifest struct {
	Format int `json:"format"`
	// State is the state directory whose streams are in the files.
	State string `json:"state"`
	// Last is the number of the last file that was created.
	Last int `json:"last"`
	// Files are in the order in which they were written. The last one is the current one, unless it is closed.
	Files []file `json:"files"`
	// Streams are those that were ever written, with what the files have of them.
	Streams []written `json:"streams"`
}

// file is one file.
type file struct {
	Name string `json:"name"`
	// Bytes is the number of bytes that a reader may read, Lines that of the lines in them.
	Bytes int64  `json:"bytes"`
	Lines uint64 `json:"lines"`
	// From and To are the times of the first and the last batch.
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Closed bool      `json:"closed"`
}

// written is what the files have of one stream.
type written struct {
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	sink.Progress
}

// readManifest returns the manifest in dir, or an error, fs.ErrNotExist if there is none.
func readManifest(dir string) (*manifest, error) {
	path := filepath.Join(dir, manifestName)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := &manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; restore the directory from a backup, or begin anew in another one", path,
			err)
	}
	if m.Format != format {
		return nil, fmt.Errorf("%s has format %d, and this keepwatch reads format %d", path, m.Format, format)
	}
	return m, nil
}

func (m *manifest) write(dir string) error {
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, manifestName), append(text, '\n'))
}

// stream returns the entry of a stream, which it adds if there is none.
func (m *manifest) stream(id stream.Identity) *written {
	for i := range m.Streams {
		if s := &m.Streams[i]; s.Resource == id.Resource && s.Namespace == id.Namespace {
			return s
		}
	}
	m.Streams = append(m.Streams, written{Resource: id.Resource, Namespace: id.Namespace})
	return &m.Streams[len(m.Streams)-1]
}

// current returns the file that lines are appended to, nil if the last one is closed.
func (m *manifest) current() *file {
	if n := len(m.Files); n > 0 && !m.Files[n-1].Closed {
		return &m.Files[n-1]
	}
	return nil
}

// has reports whether the manifest has a file.
func (m *manifest) has(name string) bool {
	for _, f := range m.Files {
		if f.Name == name {
			return true
		}
	}
	return false
}

// forget removes the closed files that somebody has deleted.
func (m *manifest) forget(dir string) error {
	var files []file
	for _, f := range m.Files {
		_, err := os.Stat(filepath.Join(dir, f.Name))
		switch {
		case f.Closed && errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf(
				"file %s is missing: closed files may be deleted, the current one may not; begin anew in another directory with another state directory", filepath.Join(dir, f.Name))
		case err != nil:
			return err
		}
		files = append(files, f)
	}
	m.Files = files
	return nil
}

// check returns an error if the files cannot be what the streams of a state directory have delivered.
func (m *manifest) check(dir string, streams []sink.Stream, delivered sink.Delivered) error {
	if m.State != delivered.State {
		return fmt.Errorf(
			"the files in %s are those of another state directory: begin anew in another directory, or restore the state directory from which they were written", dir)
	}
	if m.Last == 0 && delivered.Objects > 0 {
		return fmt.Errorf(
			"directory %s is empty, and objects were delivered to it: its files were deleted; begin anew in another directory with another state directory", dir)
	}
	for i, s := range streams {
		has, want := m.stream(s.ID).Progress, delivered.Progress[i]
		if has.Before(want) {
			return fmt.Errorf(
				"the files in %s have %s up to revision %d, and %d was delivered: lines are missing, for example because the directory was restored from a backup; begin anew in another directory with another state directory",
				dir, s.ID.Resource, has.Cursor, want.Cursor)
		}
	}
	return nil
}
