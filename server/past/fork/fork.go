package fork

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/controlplane"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// State is the state of a moment, as the data of a server.
type State struct {
	Memory *controlplane.Memory
	controlplane.Restoration
	Time     time.Time
	Revision keepwatch.Revision // of the line with the most types
	// Unknown are the resources that the history began to follow later, or had stopped to follow before.
	Unknown []string
	// Lines is the number of etcds: if there are several, the states belong together by their time only.
	Lines int
}

// At returns the state at a moment, of every type that was followed then. It returns a [history.Unknown] if the moment
// is in a gap of one of them, unless allowGaps, or if it is before or after all of them. References to owners whose
// type is not in the history are removed. The caller owns the Memory.
//
// Its Events expire when eventTTL has passed since their last write, of which the time up to the moment has passed
// already: as they would have in the cluster, had it gone on like the fork. One that was older than that at the moment
// comes from a cluster that keeps Events longer, which does not say for how long: it stays for a whole eventTTL, and
// nothing that the moment had is gone at the start. An eventTTL of 0 is that of a server without another one.
func At(ctx context.Context, h *history.History, m history.Moment, allowGaps bool,
	eventTTL time.Duration) (state *State, err error) {
	err = h.View(ctx, func(v *history.View) error {
		state, err = read(ctx, v, m, allowGaps, cmp.Or(eventTTL, controlplane.DefaultEventTTL))
		return err
	})
	return state, err
}

func read(ctx context.Context, v *history.View, m history.Moment, allowGaps bool,
	eventTTL time.Duration) (*State, error) {
	streams := history.ByLine(v.Streams())
	if m.IsNow() { // what is not followed any more has no newest state
		streams = slices.DeleteFunc(streams, func(s sink.Status) bool { return !s.Active })
	}
	points, err := v.Points(ctx, m, true, streams...)
	if err != nil {
		return nil, err
	}
	s := &State{Time: points.Time, Revision: points.Of(streams[0]).Revision, Lines: points.Lines()}
	var followed []sink.Status
	var first error
	for _, of := range streams {
		err := v.CheckAt(ctx, of, points)
		unknown, ok := errors.AsType[*history.Unknown](err)
		switch {
		case err == nil, ok && allowGaps && unknown.Gap != nil:
			followed = append(followed, of)
		case ok && unknown.NotFollowed(of):
			s.Unknown, first = append(s.Unknown, of.ID.Resource), cmp.Or(first, err)
		default:
			return nil, err
		}
	}
	if len(followed) == 0 {
		return nil, first
	}
	kinds := map[schema.GroupKind]bool{}
	for _, of := range followed {
		t, err := v.TypeAt(ctx, of.ID.Resource, s.Time)
		if err != nil {
			return nil, err
		}
		if t != nil {
			kinds[schema.GroupKind{Group: t.Group(), Kind: t.Kind}] = true
		}
	}
	newest := keepwatch.Revision(0)
	for _, of := range followed {
		newest = max(newest, points.Of(of).Revision)
	}
	memory, restored, err := controlplane.RestoreMemory(ctx, newest, objects(ctx, v, points, followed, eventTTL),
		func(owner metav1.OwnerReference) bool {
			gv, err := schema.ParseGroupVersion(owner.APIVersion)
			return err == nil && kinds[gv.WithKind(owner.Kind).GroupKind()]
		})
	if err != nil {
		return nil, err
	}
	s.Memory, s.Restoration = memory, *restored
	return s, nil
}

// objects returns the objects of streams at their points.
func objects(ctx context.Context, v *history.View, points *history.Points, streams []sink.Status,
	eventTTL time.Duration) iter.Seq2[controlplane.RestoredObject, error] {
	return func(yield func(controlplane.RestoredObject, error) bool) {
		for _, of := range streams {
			states, err := v.At(ctx, history.Objects{Resource: of.ID.Resource, Namespace: of.ID.Namespace}, points.Of(of))
			if err != nil {
				yield(controlplane.RestoredObject{}, err)
				return
			}
			lifetime := func(*sink.State) (time.Duration, error) { return 0, nil }
			if history.AreEvents(of.ID.Resource) {
				written := v.EventsWritten(of)
				lifetime = func(s *sink.State) (time.Duration, error) {
					last, err := written(s)
					return remaining(eventTTL, points.Time.Sub(last)), err
				}
			}
			resource := schema.ParseGroupResource(of.ID.Resource)
			for i := range states {
				ttl, err := lifetime(&states[i])
				if !yield(controlplane.RestoredObject{Resource: resource, JSON: states[i].Object, TTL: ttl}, err) || err != nil {
					return
				}
			}
		}
	}
}

// remaining returns how long an Event of an age stays.
func remaining(ttl, age time.Duration) time.Duration {
	if age < 0 || age >= ttl { // the times of a reporter may be ahead
		return ttl
	}
	return ttl - age
}

// String says what the state has, for people.
func (s *State) String() string {
	text := fmt.Sprintf("revision %d at %s: %d objects", s.Revision, s.Time.UTC().Format(time.RFC3339), s.Objects)
	for _, resource := range slices.SortedFunc(maps.Keys(s.Skipped), compare) {
		text += fmt.Sprintf("; %d %s are not served", s.Skipped[resource], resource)
	}
	if len(s.Unknown) > 0 {
		text += fmt.Sprintf("; not followed then: %d types (%s, …)", len(s.Unknown), s.Unknown[0])
	}
	if s.Unowned > 0 {
		text += fmt.Sprintf("; %d references to owners that are not in the history were removed", s.Unowned)
	}
	if len(s.Namespaces) > 0 {
		text += fmt.Sprintf("; %d namespaces were created, which the history does not have", len(s.Namespaces))
	}
	if s.Lines > 1 {
		text += fmt.Sprintf("; the types are of %d etcds, and belong together by their time only", s.Lines)
	}
	return text
}

func compare(a, b schema.GroupResource) int { return cmp.Compare(a.String(), b.String()) }
