package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	bolt "go.etcd.io/bbolt"

	"github.com/keepwatch/keepwatch/internal/boltfile"
	"github.com/keepwatch/keepwatch/internal/durable"
)

const (
	fileName = "stream.db"
	// format is the version of the file's content. Format 1, which is read, has no renditions.
	format = 2
)

// Open opens the state in dir for the stream id, or creates one there. The state is locked
// until Close or the end of the process. Open returns an error for a state of another
// stream, one that is in use, one of another format, and a damaged one, and does not
// change it. It reads the whole state once, to verify it.
func Open(dir string, id Identity) (State, error) {
	if err := durable.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	path := filepath.Join(dir, fileName)
	d, err := open(path, id)
	if err != nil {
		return nil, explain(dir, path, err)
	}
	return d, nil
}

// Exists reports whether a directory has a state.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, fileName))
	return !errors.Is(err, os.ErrNotExist)
}

// Move moves the state of the stream id from one directory to another, which it makes. It does nothing if the first has
// no state, and returns the errors of [Open]. After a crash the state is in one of them.
func Move(from, to string, id Identity) error {
	if !Exists(from) {
		return nil
	}
	state, err := Open(from, id)
	if err != nil {
		return err
	}
	if err := state.Close(); err != nil {
		return err
	}
	if err := durable.MkdirAll(to); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(from, fileName), filepath.Join(to, fileName)); err != nil {
		return err
	}
	return errors.Join(durable.SyncDir(to), durable.SyncDir(from))
}

// explain adds the path and advice to an error of opening a state.
func explain(dir, path string, err error) error {
	switch {
	case boltfile.InUse(err):
		return fmt.Errorf("state directory %s is in use by another keepwatch", dir)
	case errors.Is(err, errOtherStream):
		return fmt.Errorf("state directory %s %w; use another directory, or delete this one to begin anew", dir, err)
	case errors.Is(err, errDamagedFile):
		return fmt.Errorf("state file %s %w; it was not changed: restore it from a backup, or delete it to begin anew", path,
			err)
	case errors.As(err, new(*os.PathError)):
		return fmt.Errorf("state file: %w", err)
	}
	return fmt.Errorf("state file %s: %w", path, err)
}

var (
	errOtherStream = errors.New("belongs to another stream")
	errDamagedFile = boltfile.ErrDamaged
)

// open is Open without the advice in the errors.
func open(path string, id Identity) (*disk, error) {
	return openWith(path, boltfile.OrCreate, func(d *disk) error { return d.checkIdentity(id) })
}

// openWith opens a file, checks its head and verifies the rest.
func openWith(path string, open func(string) (*bolt.DB, error), checkHead func(*disk) error) (*disk, error) {
	d := &disk{path: path}
	_, err := boltfile.Open(path, open, func(db *bolt.DB) (err error) {
		d.db = db
		if d.file, err = os.Stat(path); err != nil {
			return err
		}
		if err := checkHead(d); err != nil {
			return err
		}
		return d.verify()
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// head is the content of the head bucket.
type head struct {
	identity Identity
	position position
	current  bool // the format
}

// checkIdentity returns an error if the file belongs to another stream than id. It
// initializes a new file for id.
func (d *disk) checkIdentity(id Identity) error {
	found, err := d.head()
	if err != nil {
		return err
	}
	if found == nil {
		return d.create(id)
	}
	if err := found.belongsTo(id); err != nil {
		return err
	}
	d.committed = found.position
	updated := found.identity
	updated.Cluster = updated.Cluster.Updated(id.Cluster)
	if updated == found.identity && found.current {
		return nil
	}
	return d.db.Update(func(tx *bolt.Tx) error {
		return errors.Join(tx.Bucket(headBucket).Put(formatKey, []byte(strconv.Itoa(format))), writeIdentity(tx, updated))
	})
}

// head returns the head of the file, or nil for an empty file.
func (d *disk) head() (found *head, err error) {
	err = d.db.View(func(tx *bolt.Tx) (err error) {
		found, err = readHead(tx)
		return err
	})
	return found, err
}

// belongsTo returns an error if the file belongs to another stream than id.
func (h *head) belongsTo(id Identity) error {
	if !h.identity.Matches(id) {
		return fmt.Errorf("%w: it has the state of %s, not of %s", errOtherStream, h.identity, id)
	}
	return nil
}

// readHead returns the head of a file, or nil for an empty file.
func readHead(tx *bolt.Tx) (*head, error) {
	bucket := tx.Bucket(headBucket)
	if bucket == nil {
		if first, _ := tx.Cursor().First(); first != nil {
			return nil, errors.New("it is a bbolt file of another program")
		}
		return nil, nil
	}
	found := string(bucket.Get(formatKey))
	if n, err := strconv.Atoi(found); err != nil || n < 1 || n > format {
		return nil, fmt.Errorf("it has format %q, and this keepwatch reads formats up to %d", found, format)
	}
	h := &head{current: found == strconv.Itoa(format)}
	text, err := verifyChecksum(bucket.Get(identityKey))
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
		return nil, fmt.Errorf("%w: %w", errDamagedFile, err)
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
			head.Put(positionKey, d.committed.encode()),
			writeIdentity(tx, id),
		)
	})
}

func writeIdentity(tx *bolt.Tx, id Identity) error {
	body, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return tx.Bucket(headBucket).Put(identityKey, putChecksum(append(make([]byte, checksumSize), body...)))
}

// verify reads the whole file, and returns an error if a record or an announcement is
// missing or damaged.
func (d *disk) verify() error {
	return d.db.View(func(tx *bolt.Tx) error {
		count := uint64(0)
		err := tx.Bucket(recordsBucket).ForEach(func(key, text []byte) error {
			count++
			r, err := decodeRecord(text)
			if err == nil && r.serial > d.committed.Serial {
				err = fmt.Errorf("damaged: serial %d of %d", r.serial, d.committed.Serial)
			}
			if err != nil {
				return fmt.Errorf("%w: record %q: %w", errDamagedFile, key, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if count != d.committed.Count {
			return fmt.Errorf("%w: it has %d records, and %d were written", errDamagedFile, count, d.committed.Count)
		}
		return tx.Bucket(intentsBucket).ForEach(func(number, text []byte) error {
			if _, err := decodeAnnouncement(number, text); err != nil {
				return fmt.Errorf("%w: announcement %x: %w", errDamagedFile, number, err)
			}
			return nil
		})
	})
}
