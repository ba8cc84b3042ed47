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
	// Related is another object of the same happening, such as the Pod for which this one was removed, or nil.
	Related *Subject
	Type    string // Normal or Warning
	Reason  string
	Message string
	// Reporter is the component that has written it.
	Reporter string
	// Count is how often it was observed, between First and Last, which are times of the reporter's clock.
	Count       int
	First, Last time.Time
	// State is the last state of the last of its Events, without its object.
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

// group returns the group of the APIVersion.
func (s Subject) group() string {
	if group, _, grouped := strings.Cut(s.APIVersion, "/"); grouped {
		return group
	}
	return ""
}

// TypeIn returns the type of an object among others, nil if it is not there, or not known. Without an APIVersion it is
// one of the core group, or the only one of its kind.
func (s Subject) TypeIn(all []Type) (found *Type) {
	several := false
	for i, t := range all {
		switch {
		case !strings.EqualFold(t.Kind, s.Kind) || s.APIVersion != "" && t.Group() != s.group():
		case s.APIVersion != "" || t.Group() == "":
			return &all[i]
		default:
			found, several = &all[i], found != nil
		}
	}
	if several {
		return nil
	}
	return found
}

// Named returns the objects that a state of an Event names: what it is about, and the related one, or nil.
func Named(s *sink.State) (subject Subject, related *Subject, err error) {
	e, err := parseEvent(s)
	if err != nil {
		return subject, nil, err
	}
	return e.subject, e.related(), nil
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

// AreEvents reports whether the objects of a resource are Events.
func AreEvents(resource string) bool { return slices.Contains(eventResources, resource) }

// maxReported bounds the Reported in memory.
const maxReported = 250_000

// Reported returns what Events say about objects, in the order in which it was observed last. In memory are the
// Reported, and one Event at a time. An Event that was deleted and is back, as after a restore from a backup, counts
// twice. It returns an error if there are too many Reported for the memory.
func (v *View) Reported(ctx context.Context, about About) ([]Reported, error) {
	return v.reported(ctx, about, maxReported)
}

func (v *View) reported(ctx context.Context, about About, most int) ([]Reported, error) {
	stream, err := v.eventStream(about.Namespace)
	if err != nil {
		return nil, err
	}
	stories := map[saying]*Reported{}
	query := sink.StateQuery{Resource: stream.ID.Resource, Namespace: about.Namespace}
	err = v.tables.States(ctx, query, func(s sink.State) error {
		if s.To != nil && !s.Deleted || !bytes.Contains(s.Object, []byte(about.Name)) {
			return nil // it was replaced by another state of the Event
		}
		e, err := parseEvent(&s)
		if err != nil || !about.selects(e.subject) {
			return err
		}
		s.Object = nil
		e.addTo(stories)
		if len(stories) > most {
			return fmt.Errorf(
				"the Events about these objects say more than %d different things: give a namespace or a name", most)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := v.end(ctx, query, stream, about.TTL, stories); err != nil {
		return nil, err
	}
	all := make([]Reported, 0, len(stories))
	for _, r := range stories {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Reported) int { return compareReported(&a, &b) })
	return all, nil
}

// saying is what Events have in common that are one Reported.
type saying struct {
	subject, related                Subject
	kind, reason, message, reporter string
}

// addTo adds an Event to those that say the same.
func (e *reportedEvent) addTo(stories map[saying]*Reported) {
	said := saying{e.subject, e.Related, e.Type, e.Reason, cmp.Or(e.Message, e.Note), e.reporter()}
	one := &Reported{
		Subject: e.subject, Related: e.related(), Type: e.Type, Reason: e.Reason, Message: said.message,
		Reporter: said.reporter, Count: e.count,
		First: e.first, Last: e.last, State: e.state,
	}
	known := stories[said]
	if known == nil {
		stories[said] = one
		return
	}
	known.Count += e.count
	if e.first.Before(known.First) {
		known.First = e.first
	}
	if compareReported(known, one) < 0 {
		known.Last, known.State = one.Last, one.State
	}
}

func compareReported(a, b *Reported) int {
	return cmp.Or(a.Last.Compare(b.Last), compare(a.State.From, b.State.From), cmp.Compare(a.State.ID, b.State.ID))
}

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
	return strings.EqualFold(a.Kind, s.Kind) && (a.AnyGroup || s.APIVersion == "" || s.group() == a.Group) &&
		(a.Namespace == "" || s.Namespace == a.Namespace) && (a.Name == "" || s.Name == a.Name)
}

// reportedEvent is the last state of an Event, of core/v1 or events.k8s.io/v1.
type reportedEvent struct {
	Metadata       struct{ CreationTimestamp time.Time }
	InvolvedObject Subject // of core/v1, as the others without their word for it
	Regarding      Subject
	Related        Subject // of both
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

// related returns the related object, nil if there is none.
func (e *reportedEvent) related() *Subject {
	if e.Related.Kind == "" || e.Related.Name == "" {
		return nil
	}
	return &e.Related
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

// Beside is the state of an object when an Event about it was written.
type Beside struct {
	// State is nil if the history has none until then. If Deleted is true, it is the last one before the deletion.
	State   *sink.State
	Deleted bool
	// At is a revision at which the history knows State to be valid, and that a [Moment] names, 0 if there is none.
	At keepwatch.Revision
	// Restored reports whether etcd was restored from a backup after State, which is why there is none.
	Restored bool
	// Doubt says why the object may have been in another state, "" if it was not.
	Doubt string
}

// MomentOf returns the moment of a stream that belongs to a state of an Event, which is of the stream from: its
// revision, or without revisions that both have in common, the time at which it was written. If the history of the
// stream begins later, it is that beginning, and late is true.
func (v *View) MomentOf(s *sink.State, from, of sink.Status) (m Moment, late bool, err error) {
	if from.Line == of.Line && s.From.Epoch == of.Progress.Epoch {
		if s.From.Before(of.First) {
			return Moment{Revision: of.First.Revision}, true, nil
		}
		return Moment{Revision: s.From.Revision}, false, nil
	}
	written, err := v.EventsWritten(from)(s)
	if written.Before(of.FirstSeen) {
		return Moment{Time: of.FirstSeen}, true, err
	}
	return Moment{Time: written}, false, err
}

// Beside returns the state of an object that r names, its Subject or its Related, when r was written last, with its
// contents. states are those of that object, without theirs. Without revisions that both have in common it is that of
// the time.
func (v *View) Beside(ctx context.Context, r *Reported, subject Subject, resource string,
	states []sink.State) (b Beside, err error) {
	stream, err := v.StreamOf(resource, subject.Namespace)
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
		at := written(events, v.gapsOf(events), r.State, r.Last)
		if points, err = v.Points(ctx, Moment{Time: at}, true, stream); err != nil {
			return b, err
		}
	}
	at := points.Of(stream)
	// Some components give another UID than the object's: the kubelet's Events about a Node have its name.
	byUID := slices.ContainsFunc(states, func(s sink.State) bool { return s.UID == subject.UID })
	for i := range states {
		s := &states[i]
		if byUID && s.UID != subject.UID || at.Before(s.From) {
			continue
		}
		if b.State == nil || b.State.From.Before(s.From) {
			b.State = s
		}
	}
	if b.State != nil {
		b.Deleted = b.State.To != nil && !at.Before(*b.State.To)
		if b.State, err = v.whole(ctx, b.State); err != nil {
			return b, err
		}
		if b.At, err = v.RevisionOf(ctx, stream, b.State); err != nil {
			return b, err
		}
		b.Restored = b.At == 0 && b.State.From.Epoch < stream.Progress.Epoch
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

// whole returns a state with its object.
func (v *View) whole(ctx context.Context, s *sink.State) (*sink.State, error) {
	before := sink.Point{Epoch: s.From.Epoch, Revision: s.From.Revision - 1}
	of := Objects{Resource: s.Resource, Namespace: s.Key.Namespace, Name: s.Key.Name}
	all, err := v.between(ctx, of, before, s.From, false, 0)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(other sink.State) bool { return other.ID == s.ID })
	if i < 0 {
		return nil, fmt.Errorf("%s %s has no state %d any more", s.Resource, s.Key, s.ID)
	}
	return &all[i], nil
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
