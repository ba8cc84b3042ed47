package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// checkData looks at what etcd keeps in dir before etcd does, read-only. etcd would start afresh on
// data of which a part is missing or empty, and panics on a damaged database.
func checkData(dir string) error {
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil {
		return err
	}
	database := filepath.Join(dir, "member", "snap", "db")
	info, err := os.Stat(database)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(logs) == 0:
		return nil // new
	case errors.Is(err, fs.ErrNotExist):
		return damaged(dir, "member/snap/db is missing")
	case err != nil:
		return fmt.Errorf("cannot read %s: %w", database, reason(err))
	case info.Size() == 0:
		return damaged(dir, "member/snap/db is empty")
	}
	used, err := checkDatabase(database, info.Size())
	if err != nil {
		return damaged(dir, "member/snap/db: "+err.Error())
	}
	if used && len(logs) == 0 {
		return damaged(dir, "member/wal has no log")
	}
	return nil
}

func damaged(dir, what string) error {
	return fmt.Errorf("the data in %s is damaged (%s); it was not touched: restore a copy, or give another folder", dir, what)
}

// checkDatabase walks the whole tree of pages of a file of that size. used is false for a database
// that nothing was written to yet: etcd was killed in its very first start.
func checkDatabase(path string, size int64) (used bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return false, errors.New("another process has it open")
	}
	if err != nil {
		return false, err
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		if tx.Size() > size { // a page behind the end of the file can't even be looked at
			return fmt.Errorf("the file ends at %d of %d bytes", size, tx.Size())
		}
		if meta := tx.Bucket([]byte("meta")); meta != nil {
			used = meta.Get([]byte("consistent_index")) != nil
		}
		var first error
		for problem := range tx.Check() {
			if first == nil {
				first = problem
			}
		}
		return first
	})
	return used, err
}
