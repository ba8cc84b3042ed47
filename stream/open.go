package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	bolt "go.etcd.io/bbolt"
	boltErrors "go.etcd.io/bbolt/errors"
)

const (
	fileName = "stream.db"
	// format is the version of what the file holds.
	format = 1
	// lockTimeout is how long an earlier run may take to end.
	lockTimeout = time.Second
)

// Open opens the state in dir for a stream of id, or makes a new one there. It
// is locked until Close, and by a process until its end. A state of something
// else, one in use and a damaged one are refused, and left as they are. A state
// is read once, completely, to be sure of it.
func Open(dir string, id Identity) (State, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	path := filepath.Join(dir, fileName)
	d, err := open(path, id)
	switch {
	case errors.Is(err, boltErrors.ErrTimeout):
		return nil, fmt.Errorf("state directory %s is in use by another keepwatch", dir)
	case errors.Is(err, errOther):
		return nil, fmt.Errorf("state directory %s %w; use another directory, or delete this one to begin anew", dir, err)
	case errors.Is(err, errBroken):
		return nil, fmt.Errorf("state file %s %w; it is left as it is: restore it from a backup, or delete it to begin anew", path, err)
	case errors.As(err, new(*os.PathError)):
		return nil, fmt.Errorf("state file: %w", err)
	case err != nil:
		return nil, fmt.Errorf("state file %s: %w", path, err)
	}
	return d, nil
}

var (
	errOther  = errors.New("belongs to another stream")
	errBroken = errors.New("is damaged")
)

// open does what Open does. A damaged file makes bbolt panic, or read beyond the
// end of its mapping, in many places.
func open(path string, id Identity) (d *disk, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var db *bolt.DB
	defer func() {
		if recover() != nil {
			err = fmt.Errorf("%w: parts of it are missing or garbled", errBroken)
		}
		if err != nil && db != nil {
			err = errors.Join(err, closeQuietly(db))
		}
	}()
	db, err = openOrBegin(path)
	switch {
	case errors.Is(err, boltErrors.ErrInvalid), errors.Is(err, boltErrors.ErrChecksum), errors.Is(err, boltErrors.ErrVersionMismatch):
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	case err != nil:
		return nil, err
	}
	d = &disk{db: db, path: path}
	if d.file, err = os.Stat(path); err != nil {
		return nil, err
	}
	if err := d.prepare(id); err != nil {
		return nil, err
	}
	return d, d.verify()
}

// openOrBegin opens a file, or makes a new one. A new file gets its name only once
// bbolt has begun it, so that one that is shorter was damaged, and never is what a
// process left that was killed at its start.
func openOrBegin(path string) (*bolt.DB, error) {
	db, err := lock(path, openWhole)
	if !errors.Is(err, fs.ErrNotExist) {
		return db, err
	}
	if db, err = lock(path+".new", os.OpenFile); err != nil {
		return nil, err
	}
	if _, err = os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err = os.Rename(path+".new", path); err == nil {
			return db, nil
		}
	}
	// Another process was faster, or the name can't be given.
	_ = os.Remove(path + ".new")
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	return lock(path, openWhole)
}

// lock opens a bbolt file for this process alone.
func lock(path string, open func(string, int, os.FileMode) (*os.File, error)) (*bolt.DB, error) {
	return bolt.Open(path, 0o600, &bolt.Options{
		Timeout: lockTimeout, FreelistType: bolt.FreelistMapType, OpenFile: open,
	})
}

// leastSize is what bbolt begins a file with, in one write: four pages of 4 KiB,
// or of more where the system's pages are larger.
const leastSize = 4 * 4096

// openWhole opens a file that is there. One that is shorter than any that was ever
// a state is refused, the empty one included: bbolt would begin anew in it, and
// what the consumer was told before would be forgotten.
func openWhole(path string, flag int, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(path, flag&^os.O_CREATE, mode)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Size() < leastSize {
		err = fmt.Errorf("%w: it ends after %d bytes", errBroken, info.Size())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// closeQuietly closes a file that may be damaged.
func closeQuietly(db *bolt.DB) (err error) {
	defer func() { _ = recover() }()
	return db.Close()
}

// head is what is known of a file before its records are.
type head struct {
	identity Identity
	position position
}

// prepare checks whose the file is, and makes it id's when it is new.
func (d *disk) prepare(id Identity) error {
	var found *head
	err := d.db.View(func(tx *bolt.Tx) (err error) {
		found, err = readHead(tx)
		return err
	})
	if err != nil {
		return err
	}
	if found == nil {
		return d.create(id)
	}
	if !found.identity.matches(id) {
		return fmt.Errorf("%w: it is of %s, not of %s", errOther, found.identity, id)
	}
	d.at = found.position
	refined := found.identity
	refined.Cluster = refined.Cluster.refined(id.Cluster)
	if refined == found.identity {
		return nil
	}
	return d.db.Update(func(tx *bolt.Tx) error { return writeIdentity(tx, refined) })
}

// readHead returns nil for a file in which nothing is.
func readHead(tx *bolt.Tx) (*head, error) {
	bucket := tx.Bucket(headBucket)
	if bucket == nil {
		if first, _ := tx.Cursor().First(); first != nil {
			return nil, errors.New("it is a bbolt file of something else")
		}
		return nil, nil
	}
	if found := string(bucket.Get(formatKey)); found != strconv.Itoa(format) {
		return nil, fmt.Errorf("it has format %q and this keepwatch reads format %d", found, format)
	}
	h := &head{}
	text, err := unseal(bucket.Get(identityKey))
	if err == nil {
		err = json.Unmarshal(text, &h.identity)
	}
	if err == nil {
		h.position, err = decodePosition(bucket.Get(positionKey))
	}
	if err == nil && (tx.Bucket(recordsBucket) == nil || tx.Bucket(intentsBucket) == nil) {
		err = errors.New("a part is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	return h, nil
}

func (d *disk) create(id Identity) error {
	return d.db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{headBucket, recordsBucket, intentsBucket} {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		head := tx.Bucket(headBucket)
		return errors.Join(
			head.Put(formatKey, []byte(strconv.Itoa(format))),
			head.Put(positionKey, d.at.encode()),
			writeIdentity(tx, id),
		)
	})
}

func writeIdentity(tx *bolt.Tx, id Identity) error {
	body, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return tx.Bucket(headBucket).Put(identityKey, seal(append(make([]byte, sealSize), body...)))
}

// verify reads everything.
func (d *disk) verify() error {
	return d.db.View(func(tx *bolt.Tx) error {
		count := uint64(0)
		err := tx.Bucket(recordsBucket).ForEach(func(key, text []byte) error {
			count++
			r, err := decodeRecord(text)
			if err == nil && r.serial > d.at.Serial {
				err = fmt.Errorf("damaged: serial %d of %d", r.serial, d.at.Serial)
			}
			if err != nil {
				return fmt.Errorf("%w: record %q: %w", errBroken, key, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if count != d.at.Count {
			return fmt.Errorf("%w: %d records where %d were written", errBroken, count, d.at.Count)
		}
		return tx.Bucket(intentsBucket).ForEach(func(number, text []byte) error {
			if _, err := decodeAnnouncement(number, text); err != nil {
				return fmt.Errorf("%w: announcement %x: %w", errBroken, number, err)
			}
			return nil
		})
	})
}
