package stream

import (
	"errors"
	"fmt"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/boltfile"
)

// Index is the index of a state on disk, opened for reading: the objects that the stream has
// delivered, as the cursor's revision shows them. Its methods may be called concurrently,
// except Close.
type Index struct {
	disk *disk
}

// OpenIndex opens the index of the state in dir, of the stream id. It changes nothing. Until
// Close no stream can open the state. OpenIndex returns an error for a state that does not
// exist, that belongs to another stream, that a stream has opened, or that is damaged; and
// for one that shows no single revision, because its first list or the list behind a gap is
// not complete. It reads the whole state once, to verify it.
func OpenIndex(dir string, id Identity) (*Index, error) {
	path := filepath.Join(dir, fileName)
	d, err := openWith(path,
		boltfile.ReadOnly,
		func(d *disk) error { return d.checkIndex(id) })
	switch {
	case errors.Is(err, errOtherStream):
		return nil, fmt.Errorf("state directory %s %w", dir, err)
	case err != nil:
		return nil, explain(dir, path, err)
	}
	return &Index{d}, nil
}

// checkIndex returns an error if the file belongs to another stream than id, or shows no
// single revision.
func (d *disk) checkIndex(id Identity) error {
	found, err := d.head()
	if err != nil {
		return err
	}
	if found == nil {
		return errors.New("it is empty: no stream has written to it")
	}
	if err := found.belongsTo(id); err != nil {
		return err
	}
	switch d.committed = found.position; {
	case d.committed.Cursor == 0:
		return errors.New("its first list is not complete: run the stream until SYNCED")
	case d.committed.Relisting:
		return fmt.Errorf("the list behind the gap at revision %v is not complete: run the stream until SYNCED",
			d.committed.Cursor)
	}
	return nil
}

// Path returns the path of the state's file.
func (x *Index) Path() string { return x.disk.path }

// Revision returns the cursor's revision, which all objects of the index show.
func (x *Index) Revision() keepwatch.Revision { return x.disk.committed.Cursor }

// Len returns the number of objects.
func (x *Index) Len() int { return int(x.disk.committed.Count) }

// Objects calls visit with each object, in the order of keys, except for keys of more than 1 KiB. The objects have
// metadata only, without managedFields, as [Object].Metadata returns them. It returns visit's error, or one of the
// file.
func (x *Index) Objects(visit func(Object) error) error {
	return x.disk.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(recordsBucket).ForEach(func(key, text []byte) error {
			r, err := decodeRecord(text)
			if err != nil {
				return x.disk.damaged("record", key, err)
			}
			original, err := originalKey(key, text)
			if err != nil {
				return x.disk.damaged("record", key, err)
			}
			return visit(lastKnown{original, r})
		})
	})
}

// Get returns the object of a key, and whether the index has it.
func (x *Index) Get(key keepwatch.Key) (Object, bool, error) {
	r, ok, err := x.disk.get(key.String())
	return lastKnown{key.String(), r}, ok, err
}

// Close closes the file.
func (x *Index) Close() error { return x.disk.db.Close() }
