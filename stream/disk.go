package stream

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	bolt "go.etcd.io/bbolt"

	"github.com/keepwatch/keepwatch"
)

// disk is a state in a bbolt file. Each write is one synced transaction.
type disk struct {
	db        *bolt.DB
	path      string
	file      os.FileInfo // of path, when it was opened
	committed position
}

// The file has three buckets. Every value except the format begins with its checksum.
var (
	headBucket    = []byte("head")    // the three keys below
	recordsBucket = []byte("records") // key → record
	intentsBucket = []byte("intents") // number (8 bytes, big endian) → intent

	formatKey   = []byte("format")
	identityKey = []byte("identity")
	positionKey = []byte("position")
)

// Close closes the file. It returns an error also if the next run would not find the
// file at its path.
func (d *disk) Close() error { return errors.Join(d.checkFile(), d.db.Close()) }

func (d *disk) position() position { return d.committed }

// checkFile returns an error if the file was deleted or replaced. The operating system
// would still accept writes to it.
func (d *disk) checkFile() error {
	file, err := os.Stat(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("state file %s was deleted while it was in use: the cursor is lost", d.path)
	case err != nil:
		return fmt.Errorf("state file: %w", err)
	case !os.SameFile(file, d.file):
		return fmt.Errorf("state file %s was replaced while it was in use: the cursor is lost", d.path)
	}
	return nil
}

func (d *disk) announced() (found []announcement, err error) {
	err = d.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(intentsBucket).ForEach(func(number, text []byte) error {
			a, err := decodeAnnouncement(number, text)
			if err != nil {
				return d.damaged("announcement", number, err)
			}
			found = append(found, a)
			return nil
		})
	})
	return found, err
}

func decodeAnnouncement(number, text []byte) (announcement, error) {
	if len(number) != 8 {
		return announcement{}, errors.New("damaged: not a number")
	}
	i, err := decodeIntent(text)
	return announcement{binary.BigEndian.Uint64(number), i}, err
}

func (d *disk) get(key string) (r record, ok bool, err error) {
	err = d.db.View(func(tx *bolt.Tx) error {
		text := tx.Bucket(recordsBucket).Get(storedKey(key))
		if ok = text != nil; !ok {
			return nil
		}
		if r, err = decodeRecord(text); err != nil {
			return d.damaged("record", []byte(key), err)
		}
		return nil
	})
	return r, ok, err
}

func (d *disk) unseen(seen serials, limit int) (keys []string, err error) {
	err = d.db.View(func(tx *bolt.Tx) error {
		records := tx.Bucket(recordsBucket).Cursor()
		for key, text := records.First(); key != nil && len(keys) < limit; key, text = records.Next() {
			serial, err := serialOf(text)
			if err != nil {
				return d.damaged("record", key, err)
			}
			if seen.has(serial) {
				continue
			}
			original, err := originalKey(key, text)
			if err != nil {
				return err
			}
			keys = append(keys, original)
		}
		return nil
	})
	return keys, err
}

const (
	// longestKey is the number of bytes of the longest key that is stored as it is. Names that are free text, such as
	// those of RBAC, may be longer than the 32 KiB for which bbolt has room.
	longestKey = 1 << 10
	// hashedPrefix begins the hash of a longer key. No name has a percent sign.
	hashedPrefix = "%sha256:"
)

// storedKey returns the key of a record in the file.
func storedKey(key string) []byte {
	if len(key) <= longestKey {
		return []byte(key)
	}
	return fmt.Appendf(nil, "%s%x", hashedPrefix, sha256.Sum256([]byte(key)))
}

// originalKey returns the key of a record: that of a hash is in its metadata.
func originalKey(stored, text []byte) (string, error) {
	if !bytes.HasPrefix(stored, []byte(hashedPrefix)) {
		return string(stored), nil
	}
	r, err := decodeRecord(text)
	if err != nil {
		return "", err
	}
	var object struct {
		Metadata struct{ Namespace, Name string } `json:"metadata"`
	}
	err = json.Unmarshal(r.metadata, &object)
	return keepwatch.Key{Namespace: object.Metadata.Namespace, Name: object.Metadata.Name}.String(), err
}

func (d *disk) announce(intents []announcement, delivered keepwatch.Revision) error {
	next := d.committed
	next.Delivered = delivered
	return d.write(next, func(tx *bolt.Tx) error {
		bucket := tx.Bucket(intentsBucket)
		for _, a := range intents {
			if err := bucket.Put(binary.BigEndian.AppendUint64(nil, a.number), a.encode()); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *disk) commit(c commit) error {
	return d.write(c.position, func(tx *bolt.Tx) error {
		records, intents := tx.Bucket(recordsBucket), tx.Bucket(intentsBucket)
		for key, r := range c.records {
			var err error
			if r == nil {
				err = records.Delete(storedKey(key))
			} else {
				err = records.Put(storedKey(key), r.encode())
			}
			if err != nil {
				return err
			}
		}
		for _, number := range c.settled {
			if err := intents.Delete(binary.BigEndian.AppendUint64(nil, number)); err != nil {
				return err
			}
		}
		return nil
	})
}

// write commits change and the position in one transaction.
func (d *disk) write(next position, change func(*bolt.Tx) error) error {
	err := d.db.Update(func(tx *bolt.Tx) error {
		if err := change(tx); err != nil {
			return err
		}
		return tx.Bucket(headBucket).Put(positionKey, next.encode())
	})
	if err != nil {
		return fmt.Errorf("write state file %s: %w", d.path, err)
	}
	d.committed = next
	return d.checkFile()
}

func (d *disk) damaged(what string, key []byte, err error) error {
	return fmt.Errorf("state file %s: %s %q: %w", d.path, what, key, err)
}
