package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
)

// database is a consumer that commits pieces.
type database struct {
	objects map[keepwatch.Key]Entry
	last    Piece
	log     []string
	fail    error
}

func (d *database) write(p Piece) error {
	if d.fail != nil {
		return d.fail
	}
	for _, m := range p.Messages {
		switch m := m.(type) {
		case Event:
			d.log = append(d.log, m.Type.String()+" "+m.ID)
			if m.Type == keepwatch.Deleted {
				delete(d.objects, m.Object.Key())
			} else {
				d.objects[m.Object.Key()] = Entry{m.Object.Key(), m.Object.UID(), m.Object.Revision(), m.Rendition}
			}
		case Gap:
			d.log = append(d.log, "GAP "+string(m.Reason))
		case Synced:
			d.log = append(d.log, "SYNCED "+m.Revision.String())
		}
	}
	d.last = p
	return nil
}

func (d *database) stored() Stored {
	s := Stored{Position: d.last.Position, Entries: NewEntries()}
	for _, e := range d.objects {
		s.Entries.Put(e)
	}
	return s
}

// resume continues a stream from what the database has stored.
func (d *database) resume(t *testing.T) *Stream {
	t.Helper()
	s, err := NewTransactional(d.stored(), d.write, Options{})
	if err != nil {
		t.Fatal(err)
	}
	d.log = nil
	return s
}

func listed(t *testing.T, s *Stream, relist keepwatch.Relist, objects ...string) {
	t.Helper()
	r, err := s.Replace(context.Background(), relist)
	if err == nil {
		err = r.Put(context.Background(), things(objects...))
	}
	if err == nil {
		err = r.Commit(context.Background(), relist.To)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestTransactional resumes a stream from what a database has stored: a difference of a list, and a
// commit that failed, are delivered once.
func TestTransactional(t *testing.T) {
	d := &database{objects: map[keepwatch.Key]Entry{}}
	s := d.resume(t)
	listed(t, s, keepwatch.Relist{To: 9}, "a.1@5", "b.2@9")
	if d.last.Cursor != 9 || d.last.Count != 2 || s.Revision() != 9 {
		t.Fatalf("%+v", d.last)
	}
	if err := s.Invalidate(context.Background(), keepwatch.GapExpired); err != nil {
		t.Fatal(err)
	}

	s = d.resume(t)
	if s.Revision() != 0 {
		t.Error("the stored stream is invalid, and continues")
	}
	listed(t, s, keepwatch.Relist{To: 20}, "b.2@12", "c.3@15")
	want := []string{"GAP expired", "MODIFIED b.2/12", "ADDED c.3/15", "DELETED a.1/5/deleted", "SYNCED 20"}
	if !slices.Equal(d.log, want) {
		t.Errorf("delivered %q, want %q", d.log, want)
	}

	s = d.resume(t)
	d.fail = errors.New("disk full")
	batch := keepwatch.Batch{From: 20, To: 21, Changes: []keepwatch.Change{{Type: keepwatch.Deleted, Revision: 21,
		Object: at("c.3@21")}}}
	if _, err := s.Apply(context.Background(), batch); !errors.Is(err, d.fail) {
		t.Errorf("got %v", err)
	}
	d.fail = nil
	s = d.resume(t)
	for range 2 { // the second one is a duplicate
		if _, err := s.Apply(context.Background(), keepwatch.Batch{From: s.Revision(), To: 21,
			Changes: batch.Changes}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(d.log, []string{"DELETED c.3/21/deleted"}) || d.last.Count != 1 {
		t.Errorf("delivered %q, count %d", d.log, d.last.Count)
	}
}

// TestMoreDeletionsThanKeys lists more objects that have vanished than the keys that are read at once.
func TestMoreDeletionsThanKeys(t *testing.T) {
	d := &database{objects: map[keepwatch.Key]Entry{}}
	for i := range unseenAtOnce + 1 {
		e := Entry{Key: keepwatch.Key{Name: strconv.Itoa(i)}, UID: "u", Revision: 1}
		d.objects[e.Key] = e
	}
	d.last.Position = fmt.Appendf(nil, `{"cursor":9,"told":9,"count":%d}`, len(d.objects))
	s := d.resume(t)
	listed(t, s, keepwatch.Relist{To: 20}, "b.2@12")
	ends := append(d.log[:2:2], d.log[len(d.log)-1])
	if want := []string{"GAP downtime", "ADDED b.2/12", "SYNCED 20"}; !slices.Equal(ends, want) {
		t.Errorf("it begins and ends with %q, want %q", ends, want)
	}
	if len(d.log) != len(ends)+unseenAtOnce+1 || len(d.objects) != 1 || d.last.Count != 1 {
		t.Errorf("%d messages, %d objects, count %d", len(d.log), len(d.objects), d.last.Count)
	}
}

// TestTransactionalRefuses checks entries that do not belong to the position.
func TestTransactionalRefuses(t *testing.T) {
	one := func() *Entries {
		entries := NewEntries()
		entries.Put(Entry{keepwatch.Key{Name: "a"}, "u", 1, Rendition{}})
		return entries
	}
	for name, s := range map[string]Stored{
		"one too few":        {Position: []byte(`{"cursor":1,"count":2}`), Entries: one()},
		"one too many":       {Position: []byte(`{"cursor":1,"count":0}`), Entries: one()},
		"without a position": {Entries: one()},
		"no position":        {Position: []byte(`"x"`)},
	} {
		if _, err := NewTransactional(s, nil, Options{}); err == nil || !strings.Contains(err.Error(), "stored") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
