package embeddedetcd

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

	"github.com/keepwatch/keepwatch/server/controlplane/internal/datadir"
)

// Check reads etcd's files in d, and returns an error if they are damaged; the files are not changed.
// Without it, etcd would start empty if a part of its files is missing or empty, and would panic on
// a damaged database. Check reads all files, which takes seconds for gigabytes. It returns early if
// ctx ends.
//
// If a crash or a full disk ended a first start before etcd wrote anything, Check removes the files:
// they have a log without a cluster, and etcd would wait for a cluster forever.
//
// found reports whether d has data.
func Check(ctx context.Context, d *datadir.Dir) (found bool, err error) {
	dir := d.File(folder)
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
		return true, fmt.Errorf("cannot read %s: %w", database, datadir.Cause(err))
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
	log, err := readWAL(ctx, logs)
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
	return fmt.Errorf("the data in %s is damaged (%s); it was not touched: restore a copy, or give another folder", dir,
		what)
}

// checkDatabase reads all keys of a database file of that size. applied is the index of the last log
// entry that the database contains, or 0 if etcd was killed in its first start before it wrote one.
// empty reports whether the database has no key.
//
// It opens the file read-only: a normal open, as bbolt's own check, walks the pages in another
// goroutine, whose panic on a damaged page cannot be recovered.
func checkDatabase(ctx context.Context, path string, size int64) (applied uint64, empty bool, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // a page may refer to an address behind the end of the file
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

// checkKeys reads all keys of a bucket, and checks their order.
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
