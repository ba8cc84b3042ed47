package index

import (
	"encoding/binary"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// The index on disk has the hashes of contents. One of an earlier version has none, and is read.
func TestSumsOnDisk(t *testing.T) {
	dir := t.TempDir()
	open := func() *File {
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	record := store.Record{Key: keepwatch.Key{Namespace: "ns", Name: "a"}, UID: "u", Revision: 3, Created: 2, Stored: 3,
		Sum: 7}
	const name = "/v1/configmaps/json"
	s := open()
	if _, err := s.Restore("cluster"); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(name, store.RecordsDelta{Reset: true, Revision: 5, Objects: []store.Record{record}}); err != nil {
		t.Fatal(err)
	}
	check := func(what string, s *File, want store.Record) {
		t.Helper()
		all, err := s.Restore("cluster")
		if err != nil || all[name] == nil || len(all[name].Objects) != 1 || all[name].Objects[0] != want {
			t.Fatalf("%s: %+v, %v; want %+v", what, all[name], err, want)
		}
	}
	check("written", s, record)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	check("read again", s, record)

	err := s.db.Update(func(tx *bolt.Tx) error { // as an earlier version has left it
		key := []byte(record.Key.String())
		old := binary.AppendUvarint(nil, 3)
		old = append(binary.AppendUvarint(binary.AppendUvarint(old, 2), 3), "u"...)
		if err := tx.Bucket(resourcesBucket).Bucket([]byte(name)).Bucket(objectsBucket).Put(key, seal(key, old)); err != nil {
			return err
		}
		return tx.Bucket(headBucket).Put(formatKey, []byte("1"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	record.Sum = 0
	check("of an earlier version", s, record)
	err = s.db.View(func(tx *bolt.Tx) error {
		if got := string(tx.Bucket(headBucket).Get(formatKey)); got != fileFormat {
			t.Errorf("the format is still %s", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// The index of another cluster is dropped: its objects that this cluster lacks would be deletions for every client.
func TestIndexOfAnotherCluster(t *testing.T) {
	dir := t.TempDir()
	const name = "/v1/configmaps/json"
	for _, c := range []struct {
		cluster string
		known   bool
	}{{"one", false}, {"one", true}, {"another", false}, {"one", false}} {
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		all, err := s.Restore(c.cluster)
		if err != nil || (all[name] != nil) != c.known {
			t.Errorf("%s: %+v, %v; want an index: %v", c.cluster, all, err, c.known)
		}
		record := store.Record{Key: keepwatch.Key{Namespace: "ns", Name: "a"}, UID: "u", Revision: 3, Created: 2, Stored: 3}
		if err := s.Write(name, store.RecordsDelta{Reset: true, Revision: 5, Objects: []store.Record{record}}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The records of another cluster are dropped: its objects were never those of this one.
func TestAnotherCluster(t *testing.T) {
	f, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const name = "/v1/configmaps/json"
	if _, err := f.Restore("one"); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(name, store.RecordsDelta{Reset: true, Revision: 5}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cluster string
		has     bool
	}{{"one", true}, {"another", false}, {"one", false}} {
		if all, err := f.Restore(c.cluster); err != nil || (all[name] != nil) != c.has {
			t.Errorf("%s: %v, %v", c.cluster, all, err)
		}
	}
}
