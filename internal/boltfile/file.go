// Package boltfile opens bbolt files that may be in use, half-created or damaged.
package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	boltErrors "go.etcd.io/bbolt/errors"

	"github.com/keepwatch/keepwatch/internal/durable"
)

// ErrDamaged is the error for a file that can't be read, or is shorter than any.
var ErrDamaged = errors.New("is damaged")

// lockTimeout is how long opening waits for an earlier process to end.
const lockTimeout = time.Second

// Open opens a file with a function, OrCreate for example, and verifies it with another one, which must read
// everything that is read later: with a damaged file bbolt panics, or reads beyond the end of its mapping, in many
// places. Open then returns ErrDamaged. If verify fails, Open closes the file.
func Open(path string, open func(path string) (*bolt.DB, error), verify func(*bolt.DB) error) (db *bolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			err = fmt.Errorf("%w: parts of it are missing or garbled", ErrDamaged)
		}
		if err != nil && db != nil {
			err = errors.Join(err, closeDamaged(db))
			db = nil
		}
	}()
	db, err = open(path)
	switch {
	case errors.Is(err, boltErrors.ErrInvalid), errors.Is(err, boltErrors.ErrChecksum),
		errors.Is(err, boltErrors.ErrVersionMismatch):
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	case err != nil:
		return nil, err
	}
	return db, verify(db)
}

// closeDamaged closes a file that may be damaged.
func closeDamaged(db *bolt.DB) (err error) {
	defer func() { _ = recover() }()
	return db.Close()
}

// InUse reports whether a file could not be opened because another process has opened it.
func InUse(err error) bool { return errors.Is(err, boltErrors.ErrTimeout) }

// OrCreate opens a file, or creates one. A new file gets its name only after bbolt has
// initialized it: a shorter file under the name is then always a damaged one, and never
// one whose process was killed while it created the file.
// Its name is durable, so that a loss of power does not take what was committed.
func OrCreate(path string) (*bolt.DB, error) {
	db, err := orCreate(path)
	if err != nil {
		return nil, err
	}
	if err := durable.SyncDir(filepath.Dir(path)); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func orCreate(path string) (*bolt.DB, error) {
	db, err := lock(path, openExisting, false)
	if !errors.Is(err, fs.ErrNotExist) {
		return db, err
	}
	if db, err = lockNew(path + ".new"); err != nil {
		return nil, err
	}
	if _, err = os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err = os.Chmod(path+".new", 0o600); err != nil { // it may be there from before
			return nil, errors.Join(err, db.Close())
		}
		if runtime.GOOS == "windows" { // where an open file cannot be renamed
			if err = errors.Join(db.Close(), os.Rename(path+".new", path)); err != nil {
				return nil, err
			}
			return lock(path, openExisting, false)
		}
		if err = os.Rename(path+".new", path); err == nil {
			return db, nil
		}
	}
	// Another process was faster, or the rename failed.
	_ = os.Remove(path + ".new")
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	return lock(path, openExisting, false)
}

// lockNew opens a file that has no name yet, or creates it. One that cannot be read is the remnant of a process that
// was killed while it wrote the first pages: nothing was stored in it.
func lockNew(path string) (*bolt.DB, error) {
	// bbolt would read beyond its end
	if about, err := os.Stat(path); err == nil && 0 < about.Size() && about.Size() < minSize {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	db, err := lock(path, os.OpenFile, false)
	if err == nil || InUse(err) || os.Remove(path) != nil {
		return db, err
	}
	return lock(path, os.OpenFile, false)
}

// ReadOnly opens an existing file for readers only.
func ReadOnly(path string) (*bolt.DB, error) { return lock(path, openExisting, true) }

// lock opens a bbolt file for this process alone, or with readOnly for readers only.
func lock(path string, open func(string, int, os.FileMode) (*os.File, error), readOnly bool) (*bolt.DB, error) {
	return bolt.Open(path, 0o600, &bolt.Options{
		Timeout: lockTimeout, FreelistType: bolt.FreelistMapType, OpenFile: open, ReadOnly: readOnly,
	})
}

// minSize is the size to which bbolt initializes a file, in one write: four pages of
// 4 KiB, or of the system's page size if that is larger.
const minSize = 4 * 4096

// openExisting opens an existing file. It refuses one that is shorter than any, the
// empty file included: bbolt would initialize it again, and its content would be lost
// without an error.
func openExisting(path string, flag int, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(path, flag&^os.O_CREATE, mode)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Size() < minSize {
		err = fmt.Errorf("%w: it ends after %d bytes", ErrDamaged, info.Size())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
