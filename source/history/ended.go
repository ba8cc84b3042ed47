package history

import (
	"context"
	"fmt"
	"time"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// Ending is how an Event has ended.
type Ending struct {
	Type EndingType
	// Because says from what the type follows, "" for a current Event.
	Because string
	// Point and Time are those of the end, zero for a current Event.
	Point sink.Point
	Time  time.Time
}

// EndingType is a way in which an Event ends. The set is closed.
type EndingType string

const (
	Current   EndingType = "current"
	Expired   EndingType = "expired"
	Removed   EndingType = "deleted"
	NotJudged EndingType = "unknown" // expired or deleted
)

// end adds how the last Event of each has ended, which depends on how many others have ended with it.
func (v *View) end(ctx context.Context, all sink.StateQuery, stream sink.Status, ttl time.Duration,
	stories map[saying]*Reported) error {
	removed := map[sink.Point]int{}
	for _, r := range stories {
		if r.State.To != nil {
			removed[*r.State.To] = 0
		}
	}
	all.WithoutObjects = true
	err := v.tables.States(ctx, all, func(s sink.State) error {
		if s.Deleted {
			if n, asked := removed[*s.To]; asked {
				removed[*s.To] = n + 1
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	before, ahead, err := v.beforeJump(ctx, stream)
	if err != nil {
		return err
	}
	gapOf := v.gapsOf(stream)
	for _, r := range stories {
		r.End = ending(stream, gapOf, r, ttl, removed)
		if ahead && r.End.Type == Removed && r.State.SeenFrom.After(before.Time) { // its age is not known
			r.End.Type, r.End.Because = NotJudged, "it was stored while the clock was ahead"
		}
	}
	return nil
}

// An Event expires with a lease of etcd that the API server grants for its time to live and up to leaseReuse more, for
// all Events of that time. The end is stored up to storedLate later: a deletion is stored with the next revision, or
// with a bookmark. A last change that was stored late shortens the age by that much.
const (
	leaseReuse = time.Minute
	storedLate = 2 * time.Minute
)

// ending returns how the last Event of a Reported has ended.
func ending(stream sink.Status, gapOf func(sink.Point) *sink.StoredGap, r *Reported, ttl time.Duration,
	removed map[sink.Point]int) Ending {
	s := r.State
	if s.To == nil {
		return Ending{Type: Current}
	}
	end := Ending{Type: NotJudged, Point: *s.To, Time: s.SeenTo}
	because := func(t EndingType, format string, args ...any) Ending {
		end.Type, end.Because = t, fmt.Sprintf(format, args...)
		return end
	}
	gap := notThinned(gapOf(*s.To))
	// A Keepwatch server sends all deletions of a lease but the last at the revision before, to which that of an Event
	// by a client may belong.
	if others := removed[*s.To]; gap == nil && others > 1 {
		return because(Expired, "%d Events ended at this revision: only a lease of etcd ends several at once", others)
	}
	age := s.SeenTo.Sub(written(stream, gapOf, s, r.Last))
	about := age.Round(time.Second)
	switch {
	case age < ttl-min(storedLate, ttl/20):
		return because(Removed, "it ended %v after its last change, and would have lived for %v", about, ttl)
	case gap != nil:
		return because(NotJudged, "it ended between revisions %d and %d, which are missing (%s)", gap.From, gap.To,
			gap.Reason)
	case age <= ttl+leaseReuse+storedLate:
		return because(Expired, "it ended %v after its last change, and Events live for %v", about, ttl)
	}
	return because(NotJudged,
		"it ended %v after its last change: the server keeps Events for longer than %v, or the end was stored late",
		about, ttl)
}

// written returns when a state of an Event was written: when it was stored, or, if a list has found it, when the Event
// was observed last, which only its contents say.
func written(stream sink.Status, gapOf func(sink.Point) *sink.StoredGap, s *sink.State, observed time.Time) time.Time {
	if !observed.IsZero() && (notThinned(gapOf(s.From)) != nil || !stream.First.Before(s.From)) {
		return observed
	}
	return s.SeenFrom
}

// EventsWritten returns what says when a state of an Event of a stream was written.
func (v *View) EventsWritten(of sink.Status) func(s *sink.State) (time.Time, error) {
	gapOf := v.gapsOf(of)
	return func(s *sink.State) (time.Time, error) {
		e, err := parseEvent(s)
		if err != nil {
			return time.Time{}, err
		}
		return written(of, gapOf, s, e.last), nil
	}
}
