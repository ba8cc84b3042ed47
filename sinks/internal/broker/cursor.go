package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Format is the version of what the sinks store beside the messages.
const Format = 1

// Cursor is how far a stream has come, as a broker stores it.
type Cursor struct {
	Format   int             `json:"format"`
	Identity stream.Identity `json:"identity"`
	Line     int             `json:"line"`
	Active   bool            `json:"active"` // the last process follows the stream
	Writer   string          `json:"writer"` // the process

	Revision keepwatch.Revision  `json:"cursor"`
	Since    keepwatch.Revision  `json:"since"`
	Epoch    int                 `json:"epoch"`
	Gap      keepwatch.GapReason `json:"gap,omitempty"`
	Objects  uint64              `json:"objects"`
	Time     time.Time           `json:"time"`
	Position json.RawMessage     `json:"position,omitempty"`
}

// StreamKey identifies a stream in a broker.
type StreamKey struct{ Resource, Namespace string }

// KeyOf returns the key of a stream.
func KeyOf(id stream.Identity) StreamKey { return StreamKey{id.Resource, id.Namespace} }

// useAnother is what to do about objects of others.
const useAnother = "use another one, or delete it to begin anew"

// Enter makes the stream an active one of a writer. It returns an error if the cursor is that of another
// stream, or of a newer format.
func (c *Cursor) Enter(s sink.Stream, writer string) error {
	switch {
	case c.Format > Format:
		return fmt.Errorf("its cursor has format %d, and this keepwatch knows formats up to %d: use a newer keepwatch",
			c.Format, Format)
	case c.Format > 0 && !c.Identity.Matches(s.ID):
		return fmt.Errorf("it has the objects of %s, not of %s; %s", c.Identity, s.ID, useAnother)
	case c.Format == 0:
		c.Identity = s.ID
	}
	c.Format, c.Line, c.Active, c.Writer = Format, s.Line, true, writer
	return nil
}

var errOverlap = errors.New("it has these objects already, of another choice of namespaces; " + useAnother)

// CheckOverlap returns an error for a stream that was not stored before, if the cursor is that of another choice of
// namespaces, and has objects.
func (c *Cursor) CheckOverlap(id stream.Identity) error {
	if o := c.Identity; c.Objects > 0 && o.Resource == id.Resource && o.Namespace != id.Namespace &&
		(o.Namespace == "" || id.Namespace == "") {
		return errOverlap
	}
	return nil
}

// Advance moves the cursor to the end of a piece.
func (c *Cursor) Advance(p sink.Piece, now time.Time) {
	c.Revision, c.Since, c.Epoch, c.Gap = p.After.Cursor, p.After.Since, p.After.Epoch, p.After.Gap
	c.Objects, c.Position, c.Time = p.Count, p.Position, now
}

// Stored returns what is stored of the stream. It returns an error if it has objects that another choice of
// namespaces has delivered.
func (c *Cursor) Stored(objects *Index) (sink.Stored, error) {
	s := sink.Stored{Progress: c.Status().Progress, Time: c.Time}
	s.Entries = objects.Entries(c.Identity)
	if len(c.Position) > 0 {
		s.Position = c.Position
	} else if s.Entries.Len() > 0 {
		return s, errOverlap
	}
	return s, nil
}

// Status returns the cursor as the status of its stream.
func (c *Cursor) Status() sink.Status {
	return sink.Status{
		ID: c.Identity, Line: c.Line, Active: c.Active, Count: c.Objects, Time: c.Time,
		Progress: sink.Progress{Cursor: c.Revision, Since: c.Since, Epoch: c.Epoch, Gap: c.Gap},
	}
}
