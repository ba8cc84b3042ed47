package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// Type is a type of the history.
type Type struct {
	Resource string // with its group: "deployments.apps"
	sink.Type
	// Assumed is true if the database does not have the type: it was derived from an object, or is that of a built-in
	// kind.
	Assumed bool
	// Seen is the time from which on the database has it, zero if it is assumed.
	Seen time.Time
}

// Name and Group return the two parts of Resource.
func (t Type) Name() string  { name, _, _ := strings.Cut(t.Resource, "."); return name }
func (t Type) Group() string { _, group, _ := strings.Cut(t.Resource, "."); return group }

// APIVersion returns the group and version, as objects have it.
func (t Type) APIVersion() string {
	if group := t.Group(); group != "" {
		return group + "/" + t.Version
	}
	return t.Version
}

// Types returns the types of the history, by resource, each as it was known last. A type without objects of which
// nothing else is known is not among them.
func (v *View) Types(ctx context.Context) (all []Type, err error) {
	for _, s := range v.streams {
		if len(all) > 0 && all[len(all)-1].Resource == s.ID.Resource {
			continue
		}
		t, err := v.TypeOf(ctx, s.ID.Resource)
		if err != nil {
			return nil, err
		}
		if t != nil {
			all = append(all, *t)
		}
	}
	return all, nil
}

// TypesAt returns the types that were followed at a moment, by resource, each as it was known then. Gaps do not matter.
// It returns an [Unknown] if there are streams, and none was followed then.
func (v *View) TypesAt(ctx context.Context, m Moment) (all []Type, err error) {
	var none *Unknown
	for _, s := range v.streams {
		if len(all) > 0 && all[len(all)-1].Resource == s.ID.Resource {
			continue
		}
		if v.hasLeft(m, s) {
			continue
		}
		points, err := v.pointsIn(ctx, m, s)
		if unknown, ok := errors.AsType[*Unknown](err); ok {
			none = cmp.Or(none, unknown)
			continue
		}
		if err != nil {
			return nil, err
		}
		err = v.Check(ctx, s, points.Of(s))
		if unknown, ok := errors.AsType[*Unknown](err); ok && unknown.NotFollowed(s) {
			none = cmp.Or(none, unknown)
			continue
		} else if err != nil && !ok {
			return nil, err
		}
		t, err := v.TypeAt(ctx, s.ID.Resource, points.Time)
		if err != nil {
			return nil, err
		}
		if t != nil {
			all = append(all, *t)
		}
	}
	if len(all) == 0 && none != nil {
		return nil, none
	}
	return all, nil
}

// pointsIn returns the points of a stream at a moment of all types.
func (v *View) pointsIn(ctx context.Context, m Moment, of sink.Status) (*Points, error) {
	m, err := v.In(ctx, m, of)
	if err != nil {
		return nil, err
	}
	return v.PointsOf(ctx, m, true, of)
}

// hasLeft reports whether a stream was not followed any more at a time: its definition was deleted, or sync does not
// select it. If no stream is followed, the history is as it was when they all were. Of a revision, View.Check knows
// that.
func (v *View) hasLeft(m Moment, of sink.Status) bool {
	follows := func(s sink.Status) bool { return s.Active }
	return !of.Active && (m.IsNow() || m.Time.After(of.Time)) && slices.ContainsFunc(v.streams, follows)
}

// TypeOf returns the type of a resource as it was known last, nil if it is not known.
func (v *View) TypeOf(ctx context.Context, resource string) (*Type, error) {
	return v.TypeAt(ctx, resource, time.Time{})
}

// TypeAt returns the type of a resource as it was known at a time, or first if that is later. The zero time is now.
func (v *View) TypeAt(ctx context.Context, resource string, at time.Time) (*Type, error) {
	var first *Type
	for _, t := range slices.Backward(v.types) {
		if t.Resource != resource {
			continue
		}
		first = &Type{Resource: resource, Type: t.Type, Seen: t.Seen}
		if at.IsZero() || !t.Seen.After(at) {
			break
		}
	}
	if first != nil {
		return first, nil
	}
	if v.known != nil {
		if t := v.known(resource); t != nil {
			return &Type{Resource: resource, Type: *t, Assumed: true}, nil
		}
	}
	example, err := v.tables.Example(ctx, resource)
	if err != nil || example == nil {
		return nil, err
	}
	var o struct{ APIVersion, Kind string }
	if err := json.Unmarshal(example.Object, &o); err != nil || o.APIVersion == "" || o.Kind == "" {
		return nil, fmt.Errorf("%s %s: the history has no object with an apiVersion and a kind", resource, example.Key)
	}
	version := o.APIVersion[strings.LastIndex(o.APIVersion, "/")+1:]
	return &Type{Resource: resource, Assumed: true, Type: sink.Type{
		Version: version, Kind: o.Kind, Singular: strings.ToLower(o.Kind), Namespaced: example.Key.Namespace != "",
	}}, nil
}

// Find returns the type that a text names as kubectl's arguments do: pods, po, pod, Pod, deploy.apps,
// widgets.v1.example.com.
func (v *View) Find(ctx context.Context, text string) (*Type, error) {
	all, err := v.Types(ctx)
	if err != nil {
		return nil, err
	}
	name, group, grouped := strings.Cut(strings.ToLower(text), ".")
	var found []Type
	for _, t := range all {
		switch {
		case t.Name() != name && t.Singular != name && !strings.EqualFold(t.Kind, name) &&
			!slices.Contains(t.ShortNames, name):
		case grouped && group != t.Group() && group != t.Version && group != t.Version+"."+t.Group():
		case t.Group() == "": // as kubectl, which looks in the core group first
			return &t, nil
		default:
			found = append(found, t)
		}
	}
	switch len(found) {
	case 0:
		if len(v.streams) == 0 {
			return nil, errors.New("the history is empty: sync has stored nothing yet")
		}
		return nil, fmt.Errorf("the history has no resource type %q, only %s", text, orList(names(v.streams)))
	case 1:
		return &found[0], nil
	}
	return nil, fmt.Errorf("%q is ambiguous: give %s or %s", text, found[0].Resource, found[1].Resource)
}

// names returns the resources of streams.
func names(streams []sink.Status) (all []string) {
	for _, s := range streams {
		all = append(all, s.ID.Resource)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// maxListed bounds the texts that an error lists: a history of every type has dozens.
const maxListed = 12

// orList joins texts for people.
func orList(texts []string) string {
	if len(texts) == 0 {
		return "nothing"
	}
	if more := len(texts) - maxListed; more > 1 {
		texts = append(slices.Clone(texts[:maxListed]), fmt.Sprintf("and %d more, which 'keepwatch sync status' lists", more))
	}
	return strings.Join(texts, ", ")
}
