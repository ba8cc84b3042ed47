package controlplane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
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
	applied, err := checkDatabase(database, info.Size())
	if err != nil {
		return damaged(dir, "member/snap/db: "+err.Error())
	}
	if len(logs) == 0 {
		if applied != 0 {
			return damaged(dir, "member/wal has no log")
		}
		return nil
	}
	log, err := readJournal(logs)
	switch {
	case err != nil:
		return damaged(dir, "member/wal/"+err.Error())
	case applied > log.entry:
		return damaged(dir, fmt.Sprintf("member/wal ends at entry %d, member/snap/db has %d", log.entry, applied))
	case applied != 0 && applied < log.start():
		return damaged(dir, fmt.Sprintf("member/snap/db has entry %d, member/wal starts at %d", applied, log.start()))
	}
	return nil
}

func damaged(dir, what string) error {
	return fmt.Errorf("the data in %s is damaged (%s); it was not touched: restore a copy, or give another folder", dir, what)
}

// checkDatabase reads all keys of a file of that size. applied is the index of the last log entry that
// the database has; 0 if nothing was written to it yet: etcd was killed in its very first start.
//
// bbolt's own check, like its normal open, walks damaged pages in a goroutine that nobody can
// recover; reading is done in this one.
func checkDatabase(path string, size int64) (applied uint64, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // a page may point behind the end of the file
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return 0, errors.New("another process has it open")
	}
	if err != nil {
		return 0, err
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		if tx.Size() > size {
			return fmt.Errorf("the file ends at %d of %d bytes", size, tx.Size())
		}
		if meta := tx.Bucket([]byte("meta")); meta != nil {
			if index := meta.Get([]byte("consistent_index")); len(index) == 8 {
				applied = binary.BigEndian.Uint64(index)
			}
		}
		return tx.ForEach(func(_ []byte, bucket *bbolt.Bucket) error { return checkKeys(bucket) })
	})
	return applied, err
}

// checkKeys reads a bucket from its first to its last key.
func checkKeys(bucket *bbolt.Bucket) error {
	var last []byte
	return bucket.ForEach(func(key, _ []byte) error {
		if last != nil && bytes.Compare(last, key) >= 0 {
			return fmt.Errorf("the key %q is out of order", key)
		}
		last = key
		return nil
	})
}
