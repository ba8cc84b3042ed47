// Package datadir opens the folder with the data of one server, or keeps its files in memory. A lock in the folder
// excludes a second server. Secret files are readable by their owner only, and files are replaced in one step.
//
//	datadir.go   the folder, its lock and the files that are created once
//	file.go      unwraps errors of file operations
package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/internal/durable"
	"github.com/keepwatch/keepwatch/internal/filelock"
	"github.com/keepwatch/keepwatch/internal/privatefile"
)

// Dir is the data folder of one server. This process has the lock on it until Close.
type Dir struct {
	// Path is absolute.
	Path string
	// Temporary reports whether Close removes the folder. Its files need no flush to the disk.
	Temporary bool
	lock      io.Closer
	memory    *sync.Map // the contents of files by name, instead of a folder
}

// InMemory returns a Dir without a folder: its path is empty, and its files are in memory. Close has no effect
// on it.
func InMemory() *Dir { return &Dir{Temporary: true, memory: &sync.Map{}} }

// Clone returns a copy of a Dir in memory.
func (d *Dir) Clone() *Dir {
	clone := InMemory()
	d.memory.Range(func(name, content any) bool {
		clone.memory.Store(name, content)
		return true
	})
	return clone
}

// Open creates the folder if it does not exist, and locks it. An empty path creates a temporary
// folder.
func Open(path string) (*Dir, error) {
	d := &Dir{Path: path}
	if path == "" {
		created, err := os.MkdirTemp("", "keepwatch-")
		if err != nil {
			return nil, fmt.Errorf("cannot create a temporary data folder: %w; set TMPDIR or give a folder with --data-dir", err)
		}
		d.Path, d.Temporary = created, true
	}
	if err := d.acquireLock(); err != nil {
		if d.Temporary {
			err = errors.Join(err, os.RemoveAll(d.Path))
		}
		return nil, err
	}
	return d, nil
}

func (d *Dir) acquireLock() error {
	abs, err := filepath.Abs(d.Path)
	if err != nil {
		return fmt.Errorf("cannot use the data folder %s: %w", d.Path, err)
	}
	d.Path = abs
	if err := durable.MkdirAll(d.Path); err != nil {
		return fmt.Errorf("cannot use the data folder %s: %w", d.Path, Cause(err))
	}
	d.lock, err = filelock.TryLock(d.File("lock"))
	if errors.Is(err, filelock.ErrLocked) {
		return fmt.Errorf("the data folder %s is in use by another server: stop that server, or give another folder", d.Path)
	}
	if err != nil {
		return fmt.Errorf("cannot use the data folder %s: %w", d.Path, Cause(err))
	}
	return nil
}

// File returns the path of a file in the folder.
func (d *Dir) File(name string) string { return filepath.Join(d.Path, name) }

// Close releases the lock, and removes a temporary folder.
func (d *Dir) Close() error {
	if d.memory != nil {
		return nil
	}
	err := d.lock.Close()
	if d.Temporary {
		err = errors.Join(err, os.RemoveAll(d.Path))
	}
	return err
}

// ReadOrCreate returns the content of a file. If the file does not exist, it is created with the
// content that create returns. Other users lose the right to read the file.
func (d *Dir) ReadOrCreate(name string, create func() ([]byte, error)) ([]byte, error) {
	if d.memory != nil {
		return d.loadOrCreate(name, create)
	}
	content, err := os.ReadFile(d.File(name))
	if err == nil {
		return content, d.makePrivate(name)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if content, err = create(); err != nil {
		return nil, err
	}
	return content, privatefile.Write(d.File(name), content)
}

func (d *Dir) loadOrCreate(name string, create func() ([]byte, error)) ([]byte, error) {
	if content, ok := d.memory.Load(name); ok {
		return content.([]byte), nil
	}
	content, err := create()
	if err == nil {
		d.memory.Store(name, content)
	}
	return content, err
}

// Write replaces a file in one step. Only its owner can read it.
func (d *Dir) Write(name string, content []byte) error {
	if d.memory != nil {
		d.memory.Store(name, content)
		return nil
	}
	return privatefile.Write(d.File(name), content)
}

// makePrivate removes the rights of other users from a secret file.
func (d *Dir) makePrivate(name string) error {
	info, err := os.Stat(d.File(name))
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return err
	}
	if err := os.Chmod(d.File(name), 0o600); err != nil {
		return fmt.Errorf("others may read or change it (mode %#o): %w", info.Mode().Perm(), Cause(err))
	}
	klog.Background().Error(nil,
		"Others could read or change a secret file; it is private now. Replace it if they may have",
		"file", d.File(name), "mode", fmt.Sprintf("%#o", info.Mode().Perm()))
	return nil
}
