package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"k8s.io/klog/v2"
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

// checkLost refuses a folder without etcd's data that had some: the other files are made after it.
func (d *dataDir) checkLost() error {
	for _, name := range []string{"token", "ca.pem"} {
		if _, err := os.Stat(d.file(name)); err != nil {
			return nil // a new folder, or a token that was put there for it
		}
	}
	return fmt.Errorf("%s has no data although there is a token and a certificate authority: restore a copy, or remove these two files to start empty", d.file("etcd"))
}

// readOrCreate returns a file's content, which create makes up the first time.
func (d *dataDir) readOrCreate(name string, create func() ([]byte, error)) ([]byte, error) {
	content, err := os.ReadFile(d.file(name))
	if err == nil {
		return content, d.tighten(name)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if content, err = create(); err != nil {
		return nil, err
	}
	return content, writeFile(d.file(name), content)
}

// tighten takes the right to read a secret file from others.
func (d *dataDir) tighten(name string) error {
	info, err := os.Stat(d.file(name))
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return err
	}
	if err := os.Chmod(d.file(name), 0o600); err != nil {
		return fmt.Errorf("others may read or change it (mode %#o): %w", info.Mode().Perm(), reason(err))
	}
	klog.Background().Error(nil, "Others could read or change a secret file; it is private now. Replace it if they may have",
		"file", d.file(name), "mode", fmt.Sprintf("%#o", info.Mode().Perm()))
	return nil
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
