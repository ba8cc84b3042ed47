package controlplane

import (
	"bytes"
	"context"
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
// data of which a part is missing or empty, and panics on a damaged database. It reads all of it, which
// takes seconds for gigabytes, or until ctx ends.
//
// One kind of data is removed: what is left of a first start that ended, by a crash or on a full disk,
// before it wrote anything. etcd has made a log then and no cluster, and would wait for one for ever.
//
// found is whether there is any data then.
func checkData(ctx context.Context, dir string) (found bool, err error) {
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil {
		return false, err
	}
	database := filepath.Join(dir, "member", "snap", "db")
	info, err := os.Stat(database)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(logs) == 0:
		return false, nil // new
	case errors.Is(err, fs.ErrNotExist):
		return true, damaged(dir, "member/snap/db is missing")
	case err != nil:
		return true, fmt.Errorf("cannot read %s: %w", database, reason(err))
	case info.Size() == 0:
		return true, damaged(dir, "member/snap/db is empty")
	}
	applied, empty, err := checkDatabase(ctx, database, info.Size())
	if ctx.Err() != nil {
		return true, ctx.Err()
	}
	if err != nil {
		return true, damaged(dir, "member/snap/db: "+err.Error())
	}
	if len(logs) == 0 {
		if applied != 0 {
			return true, damaged(dir, "member/wal has no log")
		}
		return true, nil
	}
	log, err := readJournal(ctx, logs)
	switch {
	case ctx.Err() != nil:
		return true, ctx.Err()
	case err != nil:
		return true, damaged(dir, "member/wal/"+err.Error())
	case applied == 0 && log.entry == 0 && empty:
		return false, os.RemoveAll(filepath.Join(dir, "member"))
	case applied > log.entry:
		return true, damaged(dir, fmt.Sprintf("member/wal ends at entry %d, member/snap/db has %d", log.entry, applied))
	case applied != 0 && applied < log.start():
		return true, damaged(dir, fmt.Sprintf("member/snap/db has entry %d, member/wal starts at %d", applied, log.start()))
	}
	return true, nil
}

func damaged(dir, what string) error {
	return fmt.Errorf("the data in %s is damaged (%s); it was not touched: restore a copy, or give another folder", dir, what)
}

// checkDatabase reads all keys of a file of that size. applied is the index of the last log entry that
// the database has; 0 if nothing was written to it yet: etcd was killed in its very first start. empty
// is whether no key was ever written.
//
// bbolt's own check, like its normal open, walks damaged pages in a goroutine that nobody can
// recover; reading is done in this one.
func checkDatabase(ctx context.Context, path string, size int64) (applied uint64, empty bool, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // a page may point behind the end of the file
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return 0, false, errors.New("another process has it open")
	}
	if err != nil {
		return 0, false, err
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
		keys := tx.Bucket([]byte("key"))
		if empty = keys == nil; !empty {
			first, _ := keys.Cursor().First()
			empty = first == nil
		}
		return tx.ForEach(func(_ []byte, bucket *bbolt.Bucket) error { return checkKeys(ctx, bucket) })
	})
	return applied, empty, err
}

// checkKeys reads a bucket from its first to its last key.
func checkKeys(ctx context.Context, bucket *bbolt.Bucket) error {
	var last []byte
	return bucket.ForEach(func(key, _ []byte) error {
		if last != nil && bytes.Compare(last, key) >= 0 {
			return fmt.Errorf("the key %q is out of order", key)
		}
		last = key
		return ctx.Err()
	})
}
