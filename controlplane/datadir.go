package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// dataDir is the folder of one server: etcd's data, the certificate authority and the token. The
// lock in it keeps a second server out.
type dataDir struct {
	path      string
	temporary bool
	lock      *fileutil.LockedFile
}

// openDataDir creates the folder where needed and locks it.
func openDataDir(path string) (*dataDir, error) {
	d := &dataDir{path: path}
	if path == "" {
		created, err := os.MkdirTemp("", "keepwatch-")
		if err != nil {
			return nil, fmt.Errorf("cannot create a temporary data folder: %w; set TMPDIR or give one with --data-dir", err)
		}
		d.path, d.temporary = created, true
	}
	if err := d.acquire(); err != nil {
		if d.temporary {
			err = errors.Join(err, os.RemoveAll(d.path))
		}
		return nil, err
	}
	return d, nil
}

func (d *dataDir) acquire() error {
	abs, err := filepath.Abs(d.path)
	if err != nil {
		return fmt.Errorf("cannot use the data folder %s: %w", d.path, err)
	}
	d.path = abs
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return fmt.Errorf("cannot use the data folder %s: %w", d.path, reason(err))
	}
	d.lock, err = fileutil.TryLockFile(d.file("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return fmt.Errorf("the data folder %s is in use by another server: stop that one, or give another folder", d.path)
	}
	if err != nil {
		return fmt.Errorf("cannot use the data folder %s: %w", d.path, reason(err))
	}
	return nil
}

// file is the path of a file in the folder.
func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

// kept is the path of a file that is worth keeping if the folder is: else there is none.
func (d *dataDir) kept(name string) string {
	if d.temporary {
		return ""
	}
	return d.file(name)
}

// close lets go of the folder; a temporary one is removed.
func (d *dataDir) close() error {
	err := d.lock.Close()
	if d.temporary {
		err = errors.Join(err, os.RemoveAll(d.path))
	}
	return err
}

// readOrCreate returns a file's content, which create makes up the first time.
func (d *dataDir) readOrCreate(name string, create func() ([]byte, error)) ([]byte, error) {
	content, err := os.ReadFile(d.file(name))
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return content, err
	}
	if content, err = create(); err != nil {
		return nil, err
	}
	return content, writeFile(d.file(name), content)
}

// writeFile replaces a file in one step; only its owner can read it.
func writeFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// reason is the bare cause of a file operation's error: the sentence around it names the file.
func reason(err error) error {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		return pathError.Err
	}
	return err
}
