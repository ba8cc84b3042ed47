package index

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/boltfile"
	"github.com/keepwatch/keepwatch/internal/durable"
	"github.com/keepwatch/keepwatch/store"
)

// File is a file with the records of resources, each by a name.
type File struct {
	db   *bolt.DB
	path string
}

const (
	fileName   = "proxy.db"
	fileFormat = "2"
	// sumlessFormat has records without sums; see [encodeRecord].
	sumlessFormat = "1"
)

// The file has the buckets head and resources. The latter has one for each resource and encoding, with its head, a JSON
// text, and the buckets objects (key → record) and deleted (revision and key → record).
var (
	headBucket      = []byte("head")
	resourcesBucket = []byte("resources")
	objectsBucket   = []byte("objects")
	deletedBucket   = []byte("deleted")
	formatKey       = []byte("format")
	clusterKey      = []byte("cluster")
	headKey         = []byte("head")
)

// Open opens the file in a directory, or creates it. It is locked until Close or the end of the process. A file
// that is damaged or of another version is replaced: a proxy can do without it. Open returns an error for an index
// that is in use, and for a directory that can't be written.
func Open(dir string) (*File, error) {
	if err := durable.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	f := &File{path: filepath.Join(dir, fileName)}
	err := f.open()
	if errors.Is(err, boltfile.ErrDamaged) {
		klog.ErrorS(err, "The index on disk is begun anew", "file", f.path)
		if err = os.Remove(f.path); err == nil {
			err = f.open()
		}
	}
	switch {
	case boltfile.InUse(err):
		return nil, fmt.Errorf("state directory %s is in use by another keepwatch: give each proxy its own", dir)
	case err != nil:
		return nil, fmt.Errorf("state file %s: %w", f.path, err)
	}
	return f, nil
}

// Close closes the file.
func (f *File) Close() error { return f.db.Close() }

func (f *File) open() (err error) {
	f.db, err = boltfile.Open(f.path, boltfile.OrCreate, func(db *bolt.DB) error {
		return db.Update(func(tx *bolt.Tx) error {
			if first, _ := tx.Cursor().First(); first == nil {
				return initialize(tx, "")
			}
			head, resources := tx.Bucket(headBucket), tx.Bucket(resourcesBucket)
			if head == nil || resources == nil {
				return fmt.Errorf("%w: it is not an index", boltfile.ErrDamaged)
			}
			switch string(head.Get(formatKey)) {
			case fileFormat:
			case sumlessFormat:
				if err := head.Put(formatKey, []byte(fileFormat)); err != nil {
					return err
				}
			default:
				return fmt.Errorf("%w: it is not an index of this version", boltfile.ErrDamaged)
			}
			return resources.ForEachBucket(func(name []byte) error {
				_, err := readRecords(resources.Bucket(name))
				return err
			})
		})
	})
	return err
}

// initialize creates what an index without resources has.
func initialize(tx *bolt.Tx, cluster string) error {
	head, err := tx.CreateBucketIfNotExists(headBucket)
	if err != nil {
		return err
	}
	if _, err := tx.CreateBucketIfNotExists(resourcesBucket); err != nil {
		return err
	}
	return errors.Join(head.Put(formatKey, []byte(fileFormat)), head.Put(clusterKey, []byte(cluster)))
}

// Restore returns the records of all resources, by their names. It drops them if they are another cluster's.
func (f *File) Restore(cluster string) (map[string]*store.Records, error) {
	all := map[string]*store.Records{}
	err := f.db.Update(func(tx *bolt.Tx) error {
		if string(tx.Bucket(headBucket).Get(clusterKey)) != cluster {
			if err := tx.DeleteBucket(resourcesBucket); err != nil {
				return err
			}
			return initialize(tx, cluster)
		}
		resources := tx.Bucket(resourcesBucket)
		return resources.ForEachBucket(func(name []byte) (err error) {
			all[string(name)], err = readRecords(resources.Bucket(name))
			return err
		})
	})
	return all, err
}

// drop removes a resource.
func (f *File) drop(name string) error {
	return f.db.Batch(func(tx *bolt.Tx) error {
		err := tx.Bucket(resourcesBucket).DeleteBucket([]byte(name))
		if errors.Is(err, bolterrors.ErrBucketNotFound) {
			return nil
		}
		return err
	})
}

// recordsHead is the head of a resource.
type recordsHead struct {
	Revision, Horizon keepwatch.Revision
	Gaps              []store.Span
}

// Write brings a resource up to date.
func (f *File) Write(name string, d store.RecordsDelta) error {
	return f.db.Batch(func(tx *bolt.Tx) error {
		resources := tx.Bucket(resourcesBucket)
		switch known := resources.Bucket([]byte(name)) != nil; {
		case !known && !d.Reset:
			return fmt.Errorf("%s is missing in the index", name) // a difference to nothing is no state
		case known && d.Reset:
			if err := resources.DeleteBucket([]byte(name)); err != nil {
				return err
			}
		}
		of, err := resources.CreateBucketIfNotExists([]byte(name))
		if err != nil {
			return err
		}
		objects, err := of.CreateBucketIfNotExists(objectsBucket)
		if err != nil {
			return err
		}
		deleted, err := of.CreateBucketIfNotExists(deletedBucket)
		if err != nil {
			return err
		}
		head, err := json.Marshal(recordsHead{d.Revision, d.Horizon, d.Gaps})
		if err != nil {
			return err
		}
		return errors.Join(of.Put(headKey, seal(headKey, head)), writeObjects(objects, d), writeDeleted(deleted, d))
	})
}

func writeObjects(to *bolt.Bucket, d store.RecordsDelta) error {
	for _, k := range d.Gone {
		if err := to.Delete([]byte(k.String())); err != nil {
			return err
		}
	}
	for _, r := range d.Objects {
		k := []byte(r.Key.String())
		if err := to.Put(k, encodeRecord(k, r)); err != nil {
			return err
		}
	}
	return nil
}

// writeDeleted adds deletions, and removes those that nothing needs any more.
func writeDeleted(to *bolt.Bucket, d store.RecordsDelta) error {
	for _, r := range d.Deleted {
		k := append(binary.BigEndian.AppendUint64(nil, uint64(r.Stored)), r.Key.String()...)
		if err := to.Put(k, encodeRecord(k, r)); err != nil {
			return err
		}
	}
	c := to.Cursor()
	for k, _ := c.First(); k != nil && binary.BigEndian.Uint64(k) <= uint64(d.Horizon); k, _ = c.First() {
		if err := c.Delete(); err != nil {
			return err
		}
	}
	return nil
}

// readRecords reads a resource.
func readRecords(of *bolt.Bucket) (*store.Records, error) {
	text, err := unseal(headKey, of.Get(headKey))
	if err != nil {
		return nil, err
	}
	var head recordsHead
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("%w: %w", boltfile.ErrDamaged, err)
	}
	r := &store.Records{Revision: head.Revision, Horizon: head.Horizon, Gaps: head.Gaps}
	objects, deleted := of.Bucket(objectsBucket), of.Bucket(deletedBucket)
	if objects == nil || deleted == nil {
		return nil, fmt.Errorf("%w: a part of it is missing", boltfile.ErrDamaged)
	}
	read := func(to *[]store.Record, prefix int) func(k, v []byte) error {
		return func(k, v []byte) error {
			record, err := decodeRecord(k, v, prefix)
			*to = append(*to, record)
			return err
		}
	}
	if err := objects.ForEach(read(&r.Objects, 0)); err != nil {
		return nil, err
	}
	return r, deleted.ForEach(read(&r.Deleted, 8))
}

// encodeRecord returns a zero and the sum, if that is known, three revisions and the UID. The key, which k ends with,
// is not in it. No revision is zero: a record without a sum begins with one.
func encodeRecord(k []byte, r store.Record) []byte {
	var b []byte
	if r.Sum != 0 {
		b = binary.BigEndian.AppendUint64([]byte{0}, r.Sum)
	}
	b = binary.AppendUvarint(b, uint64(r.Revision))
	b = binary.AppendUvarint(b, uint64(r.Created))
	b = binary.AppendUvarint(b, uint64(r.Stored))
	return seal(k, append(b, r.UID...))
}

// decodeRecord is the inverse. The key begins after a prefix of k.
func decodeRecord(k, v []byte, prefix int) (r store.Record, err error) {
	if len(k) < prefix {
		return r, fmt.Errorf("%w: a key is too short", boltfile.ErrDamaged)
	}
	b, err := unseal(k, v)
	if err != nil {
		return r, err
	}
	if len(b) > 8 && b[0] == 0 {
		r.Sum, b = binary.BigEndian.Uint64(b[1:]), b[9:]
	}
	for _, to := range []*keepwatch.Revision{&r.Revision, &r.Created, &r.Stored} {
		value, n := binary.Uvarint(b)
		if n <= 0 {
			return r, fmt.Errorf("%w: a record is too short", boltfile.ErrDamaged)
		}
		*to, b = keepwatch.Revision(value), b[n:]
	}
	namespace, name, found := strings.Cut(string(k[prefix:]), "/")
	if !found {
		namespace, name = "", namespace
	}
	r.Key, r.UID = keepwatch.Key{Namespace: namespace, Name: name}, keepwatch.UID(b)
	return r, nil
}

// seal puts a checksum of a key and its value before the value.
func seal(k, v []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, checksum(k, v)), v...)
}

func unseal(k, v []byte) ([]byte, error) {
	if len(v) < 4 || binary.BigEndian.Uint32(v) != checksum(k, v[4:]) {
		return nil, fmt.Errorf("%w: a checksum is wrong", boltfile.ErrDamaged)
	}
	return v[4:], nil
}

func checksum(k, v []byte) uint32 { return crc32.ChecksumIEEE(bytes.Join([][]byte{k, v}, []byte{0})) }
