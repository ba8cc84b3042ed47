package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	bolt "go.etcd.io/bbolt"

	"github.com/keepwatch/keepwatch"
)

// disk is a state in a bbolt file. Each write is one synced transaction.
type disk struct {
	db   *bolt.DB
	path string
	file os.FileInfo // of path, when it was opened
	at   position
}

// The file has three buckets. Every value but the format's is sealed.
var (
	headBucket    = []byte("head")    // the keys below
	recordsBucket = []byte("records") // key → record
	intentsBucket = []byte("intents") // number (8 bytes, big endian) → intent

	formatKey   = []byte("format")
	identityKey = []byte("identity")
	positionKey = []byte("position")
)

// Close fails also if the next run would not find what was written.
func (d *disk) Close() error { return errors.Join(d.inPlace(), d.db.Close()) }

func (d *disk) position() position { return d.at }

// inPlace reports that the file was deleted, or another one was put in its place. The
// system lets us write it all the same.
func (d *disk) inPlace() error {
	file, err := os.Stat(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("state file %s was deleted while it was in use: the place in the stream is lost", d.path)
	case err != nil:
		return fmt.Errorf("state file: %w", err)
	case !os.SameFile(file, d.file):
		return fmt.Errorf("state file %s was replaced while it was in use: the place in the stream is lost", d.path)
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
		text := tx.Bucket(recordsBucket).Get([]byte(key))
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

func (d *disk) unseen(seen serials) (keys []string, err error) {
	err = d.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(recordsBucket).ForEach(func(key, text []byte) error {
			serial, err := serialOf(text)
			if err != nil {
				return d.damaged("record", key, err)
			}
			if !seen.has(serial) {
				keys = append(keys, string(key))
			}
			return nil
		})
	})
	return keys, err
}

func (d *disk) announce(intents []announcement, told keepwatch.Revision) error {
	at := d.at
	at.Told = told
	return d.write(at, func(tx *bolt.Tx) error {
		bucket := tx.Bucket(intentsBucket)
		for _, a := range intents {
			if err := bucket.Put(binary.BigEndian.AppendUint64(nil, a.number), a.encode()); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *disk) commit(piece commit) error {
	return d.write(piece.position, func(tx *bolt.Tx) error {
		records, intents := tx.Bucket(recordsBucket), tx.Bucket(intentsBucket)
		for key, r := range piece.records {
			var err error
			if r == nil {
				err = records.Delete([]byte(key))
			} else {
				err = records.Put([]byte(key), r.encode())
			}
			if err != nil {
				return err
			}
		}
		for _, number := range piece.settled {
			if err := intents.Delete(binary.BigEndian.AppendUint64(nil, number)); err != nil {
				return err
			}
		}
		return nil
	})
}

// write changes the file and the position in it, all or nothing.
func (d *disk) write(at position, change func(*bolt.Tx) error) error {
	err := d.db.Update(func(tx *bolt.Tx) error {
		if err := change(tx); err != nil {
			return err
		}
		return tx.Bucket(headBucket).Put(positionKey, at.encode())
	})
	if err != nil {
		return fmt.Errorf("write state file %s: %w", d.path, err)
	}
	d.at = at
	return d.inPlace()
}

func (d *disk) damaged(what string, key []byte, err error) error {
	return fmt.Errorf("state file %s: %s %q: %w", d.path, what, key, err)
}
