package stream

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
)

// TestAtLeastOnce fails a piece after its consumer has received it. The next stream delivers it again with the same
// ids, also what only the announcement has, and the note is that of the last commit.
func TestAtLeastOnce(t *testing.T) {
	dir, id := t.TempDir(), Identity{Resource: "things", Cluster: Cluster{UID: "c"}}
	var pieces []Piece
	fails := false
	write := func(p Piece) (string, error) {
		pieces = append(pieces, p)
		if fails {
			return "", errors.New("down")
		}
		return "at " + p.Cursor.String(), nil
	}
	project := func(metadata []byte) ([]byte, error) {
		return []byte(strings.ReplaceAll(string(metadata), `"name":"secret"`, `"name":"hidden"`)), nil
	}
	open := func(wantNote string, wantObjects uint64) (*Stream, State) {
		state, err := Open(dir, id)
		if err != nil {
			t.Fatal(err)
		}
		if note, objects := Committed(state); note != wantNote || objects != wantObjects {
			t.Errorf("the note is %q with %d objects, want %q with %d", note, objects, wantNote, wantObjects)
		}
		s, err := NewAtLeastOnce(state, write, Options{Metadata: project})
		if err != nil {
			t.Fatal(err)
		}
		pieces = nil
		return s, state
	}
	ids := func() (all []string) {
		for _, p := range pieces {
			for _, m := range p.Messages {
				if e, ok := m.(Event); ok {
					all = append(all, e.ID)
				}
			}
		}
		return all
	}
	ctx := context.Background()
	list := func(s *Stream, to keepwatch.Revision, objects ...string) error {
		r, err := s.Replace(ctx, keepwatch.Relist{To: to})
		if err == nil {
			err = r.Put(ctx, things(objects...))
		}
		if err == nil {
			err = r.Commit(ctx, to)
		}
		return err
	}

	s, state := open("", 0)
	if err := list(s, 5, "secret.1@2"); err != nil {
		t.Fatal(err)
	}
	if got := ids(); !slices.Equal(got, []string{"secret.1/2"}) || pieces[0].Position != nil {
		t.Errorf("delivered %q, %+v", got, pieces)
	}
	fails = true
	if _, err := s.Apply(ctx, batch(5, 8, "+new.2@6", "-secret.1@8")); err == nil {
		t.Fatal("the error is lost")
	}
	if err := state.Close(); err != nil {
		t.Fatal(err)
	}

	fails = false
	s, state = open("at 5", 1)
	if s.Revision() != 5 {
		t.Errorf("the revision is %d", s.Revision())
	}
	// The history is gone: what was announced comes from the state, without a body.
	if err := list(s, 20); err != nil {
		t.Fatal(err)
	}
	if got := ids(); !slices.Equal(got, []string{"secret.1/8/deleted", "new.2/6/deleted"}) {
		t.Errorf("delivered %q", got)
	}
	for _, p := range pieces {
		for _, m := range p.Messages {
			if e, ok := m.(Event); ok && strings.Contains(string(e.Object.JSON()), `"name":"secret"`) {
				t.Errorf("the state has stored %s", e.Object.JSON())
			}
		}
	}
	if err := state.Close(); err != nil {
		t.Fatal(err)
	}
	_, state = open("at 20", 0)
	if err := state.Close(); err != nil {
		t.Fatal(err)
	}
}
