package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Reported is what Events of Kubernetes say about an object. Events that say the same, and each repetition of one, are
// one Reported.
type Reported struct {
	Subject Subject
	Type    string // Normal or Warning
	Reason  string
	Message string
	// Reporter is the component that has written it.
	Reporter string
	// Count is how often it was observed, between First and Last, which are times of the reporter's clock.
	Count       int
	First, Last time.Time
	// State is the last state of the last of its Events.
	State *sink.State
	// End is how that Event has ended.
	End Ending
}

// Subject is the object that an Event is about: its involvedObject, or in events.k8s.io its regarding.
type Subject struct {
	APIVersion string        `json:"apiVersion,omitempty"`
	Kind       string        `json:"kind"`
	Namespace  string        `json:"namespace,omitempty"`
	Name       string        `json:"name"`
	UID        keepwatch.UID `json:"uid,omitempty"`
	FieldPath  string        `json:"fieldPath,omitempty"`
}

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

// About selects the Events about objects. Empty fields select all.
type About struct {
	Kind  string // in any case
	Group string // of Kind
	// AnyGroup ignores Group.
	AnyGroup        bool
	Namespace, Name string
	// TTL is how long the server keeps an Event after its last change: its flag --event-ttl.
	TTL time.Duration
}

// eventResources have the same objects.
var eventResources = []string{"events", "events.events.k8s.io"}

// Reported returns what Events say about objects, in the order in which it was observed last.
func (v *View) Reported(ctx context.Context, about About) ([]Reported, error) {
	stream, err := v.eventStream(about.Namespace)
	if err != nil {
		return nil, err
	}
	found := map[keepwatch.UID]*reportedEvent{}
	removed := map[sink.Point]int{} // how many Events ended at a point
	query := sink.StateQuery{Resource: stream.ID.Resource, Namespace: about.Namespace}
	err = v.tables.States(ctx, query, func(s sink.State) error {
		if s.Deleted {
			removed[*s.To]++
		}
		if !bytes.Contains(s.Object, []byte(about.Name)) {
			return nil
		}
		e, err := parseEvent(&s)
		if err != nil || !about.selects(e.subject) {
			return err
		}
		if known := found[s.UID]; known == nil || known.state.ID < s.ID {
			found[s.UID] = e
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	events := make([]*reportedEvent, 0, len(found))
	for _, e := range found {
		events = append(events, e)
	}
	slices.SortFunc(events, func(a, b *reportedEvent) int {
		return cmp.Or(a.last.Compare(b.last), compare(a.state.From, b.state.From), cmp.Compare(a.state.ID, b.state.ID))
	})
	type saying struct {
		subject                         Subject
		kind, reason, message, reporter string
	}
	stories := map[saying]*Reported{}
	for _, e := range events {
		said := saying{e.subject, e.Type, e.Reason, cmp.Or(e.Message, e.Note), e.reporter()}
		r := stories[said]
		if r == nil {
			r = &Reported{
				Subject: e.subject, Type: e.Type, Reason: e.Reason, Message: said.message, Reporter: said.reporter, First: e.first,
			}
			stories[said] = r
		}
		r.Count += e.count
		if e.first.Before(r.First) {
			r.First = e.first
		}
		r.Last, r.State, r.End = e.last, e.state, v.ending(stream, e, about.TTL, removed)
	}
	all := make([]Reported, 0, len(stories))
	for _, r := range stories {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Reported) int {
		return cmp.Or(a.Last.Compare(b.Last), compare(a.State.From, b.State.From), cmp.Compare(a.State.ID, b.State.ID))
	})
	return all, nil
}

// eventStream returns the stream of the Events of a namespace.
func (v *View) eventStream(namespace string) (stream sink.Status, err error) {
	for _, resource := range eventResources {
		var failed error
		if stream, failed = v.StreamOf(resource, namespace); failed == nil {
			return stream, nil
		}
		err = cmp.Or(err, failed)
	}
	return stream, fmt.Errorf("%w: keepwatch sync events stores them", err)
}

func (a About) selects(s Subject) bool {
	group, _, grouped := strings.Cut(s.APIVersion, "/")
	if !grouped {
		group = ""
	}
	return strings.EqualFold(a.Kind, s.Kind) && (a.AnyGroup || s.APIVersion == "" || group == a.Group) &&
		(a.Namespace == "" || s.Namespace == a.Namespace) && (a.Name == "" || s.Name == a.Name)
}

// reportedEvent is the last state of an Event, of core/v1 or events.k8s.io/v1.
type reportedEvent struct {
	Metadata       struct{ CreationTimestamp time.Time }
	InvolvedObject Subject // of core/v1, as the others without their word for it
	Regarding      Subject
	Type           string
	Reason         string
	Message, Note  string

	Source, DeprecatedSource                          struct{ Component string }
	ReportingComponent, ReportingController           string
	Count, DeprecatedCount                            int
	FirstTimestamp, LastTimestamp, EventTime          *time.Time
	DeprecatedFirstTimestamp, DeprecatedLastTimestamp *time.Time

	Series *struct {
		Count            int
		LastObservedTime *time.Time
	}

	state       *sink.State
	subject     Subject
	count       int
	first, last time.Time
}

func parseEvent(s *sink.State) (*reportedEvent, error) {
	e := &reportedEvent{state: s}
	if err := json.Unmarshal(s.Object, e); err != nil {
		return nil, fmt.Errorf("the Event %s at revision %d: %w", s.Key, s.From.Revision, err)
	}
	e.subject = e.InvolvedObject
	if e.subject.Kind == "" {
		e.subject = e.Regarding
	}
	e.count = max(1, e.Count, e.DeprecatedCount)
	e.first = firstTime(e.FirstTimestamp, e.DeprecatedFirstTimestamp, e.EventTime, &e.Metadata.CreationTimestamp)
	observed := []*time.Time{e.LastTimestamp, e.DeprecatedLastTimestamp, e.EventTime}
	if e.Series != nil {
		e.count = max(e.count, e.Series.Count)
		observed = append(observed, e.Series.LastObservedTime)
	}
	e.last = e.first
	for _, t := range observed {
		if t != nil && t.After(e.last) {
			e.last = *t
		}
	}
	return e, nil
}

// firstTime returns the first time that is set.
func firstTime(times ...*time.Time) time.Time {
	for _, t := range times {
		if t != nil && !t.IsZero() {
			return *t
		}
	}
	return time.Time{}
}

func (e *reportedEvent) reporter() string {
	return cmp.Or(e.ReportingComponent, e.ReportingController, e.Source.Component, e.DeprecatedSource.Component)
}

// An Event expires with a lease of etcd that the API server grants for its time to live and up to leaseReuse more, for
// all Events of that time. The end is stored up to storedLate later: a deletion is stored with the next revision, or
// with a bookmark. A last change that was stored late shortens the age by that much.
const (
	leaseReuse = time.Minute
	storedLate = 2 * time.Minute
)

// ending returns how an Event has ended.
func (v *View) ending(stream sink.Status, e *reportedEvent, ttl time.Duration, removed map[sink.Point]int) Ending {
	s := e.state
	if s.To == nil {
		return Ending{Type: Current}
	}
	end := Ending{Type: NotJudged, Point: *s.To, Time: s.SeenTo}
	because := func(t EndingType, format string, args ...any) Ending {
		end.Type, end.Because = t, fmt.Sprintf(format, args...)
		return end
	}
	gap := notThinned(v.gapOf(stream, *s.To))
	if others := removed[*s.To]; gap == nil && others > 1 {
		return because(Expired, "%d Events ended at this revision: only a lease of etcd ends several at once", others)
	}
	written := s.SeenFrom
	if notThinned(v.gapOf(stream, s.From)) != nil || !stream.First.Before(s.From) {
		written = e.last // the state was found by a list
	}
	age := s.SeenTo.Sub(written)
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

// Beside is the state of an object when an Event about it was written.
type Beside struct {
	// State is nil if the history has none until then. If Deleted is true, it is the last one before the deletion.
	State   *sink.State
	Deleted bool
	// Doubt says why the object may have been in another state, "" if it was not.
	Doubt string
}

// Beside returns the state of the object that r is about when it was written last, from states of that object. Without
// revisions that both have in common it is that of the time.
func (v *View) Beside(ctx context.Context, r *Reported, resource string, states []sink.State) (b Beside, err error) {
	stream, err := v.StreamOf(resource, r.Subject.Namespace)
	if err != nil {
		return b, err
	}
	events, err := v.eventStream(r.State.Key.Namespace)
	if err != nil {
		return b, err
	}
	points := &Points{Moment: Moment{Revision: r.State.From.Revision}, exact: events.Line,
		lines: map[int]sink.Point{events.Line: r.State.From}}
	if stream.Line != events.Line {
		if points, err = v.Points(ctx, Moment{Time: r.State.SeenFrom}, true, stream); err != nil {
			return b, err
		}
	}
	at := points.Of(stream)
	// Some components give another UID than the object's: the kubelet's Events about a Node have its name.
	byUID := slices.ContainsFunc(states, func(s sink.State) bool { return s.UID == r.Subject.UID })
	for i := range states {
		s := &states[i]
		if byUID && s.UID != r.Subject.UID || at.Before(s.From) {
			continue
		}
		if b.State == nil || b.State.From.Before(s.From) {
			b.State = s
		}
	}
	if b.State != nil && b.State.To != nil && !at.Before(*b.State.To) {
		b.Deleted = true
	}
	err = v.CheckAt(ctx, stream, points)
	unknown, ok := errors.AsType[*Unknown](err)
	if !ok {
		return b, err
	}
	switch {
	case b.State == nil:
	case b.Deleted && byUID: // a UID does not return
		return b, nil
	case !b.Deleted && at.Before(stream.First): // the first list had what was not written since
		return b, nil
	case v.outlasts(stream, b.State, at, unknown.Gap):
		return b, nil
	}
	b.Doubt = unknown.Reason
	return b, nil
}

// outlasts reports whether a state that has begun is valid at a point although other states of its stream were deleted
// there: the end of one whose successor was deleted is in the gap.
func (v *View) outlasts(of sink.Status, s *sink.State, at sink.Point, gap *sink.StoredGap) bool {
	if gap == nil || gap.Reason != sink.GapThinned {
		return false
	}
	_, end := pointsOf(*gap, v.Gaps(of))
	return s.To == nil || end.Before(*s.To) || s.Deleted && at.Before(*s.To)
}
