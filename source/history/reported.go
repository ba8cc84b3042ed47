package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
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
