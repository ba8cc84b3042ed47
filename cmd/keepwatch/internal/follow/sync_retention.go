package follow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// retention is a flag and a field of a file: 90d, with other times for some types behind it: 90d,events=7d.
type retention struct {
	all time.Duration
	of  map[string]time.Duration
}

func (r *retention) Set(text string) error {
	all := false
	for _, part := range strings.Split(text, ",") {
		resource, span, ofOne := strings.Cut(part, "=")
		if !ofOne {
			span = part
		}
		parsed, err := history.ParseSpan(span)
		switch _, twice := r.of[resource]; {
		case err != nil:
			return fmt.Errorf("%w: give a time such as 90d, or with others for some types 90d,events=7d", err)
		case !ofOne && all:
			return errors.New("all types have two times: give one, and others for some types: 90d,events=7d")
		case !ofOne:
			r.all, all = parsed, true
			continue
		case twice:
			return fmt.Errorf("%s has two times", resource)
		case len(validation.IsDNS1123Subdomain(resource)) > 0:
			return fmt.Errorf("%q is no type: give for example deployments.apps=365d", resource)
		}
		if r.of == nil {
			r.of = map[string]time.Duration{}
		}
		r.of[resource] = parsed
	}
	return nil
}

func (r *retention) String() string {
	var all []string
	if r.all != 0 {
		all = append(all, r.all.String())
	}
	for _, resource := range slices.Sorted(maps.Keys(r.of)) {
		all = append(all, resource+"="+r.of[resource].String())
	}
	return strings.Join(all, ",")
}

func (r *retention) Type() string { return "AGE" }

func (r *retention) UnmarshalJSON(text []byte) error { return unmarshalFlag("retention", r, text) }

// checkTypes returns an error for a type with a time of its own that is neither followed nor stored: the states of the
// type that is meant would be deleted after the time of all others. A type of a group without a known one may still
// join, if mayJoin says so of the group: it is among those that are awaited.
func (r *retention) checkTypes(followed []sink.Stream, stored []sink.Status,
	mayJoin func(group string) bool) (awaited []string, err error) {
	known := map[string]*sink.Type{}
	for _, s := range stored {
		known[s.ID.Resource] = nil
	}
	for _, s := range followed {
		known[s.ID.Resource] = s.Type
	}
	for _, name := range slices.Sorted(maps.Keys(r.of)) {
		if _, ok := known[name]; ok {
			continue
		}
		resource, group, _ := strings.Cut(name, ".")
		var meant []string
		others := mayJoin(group)
		for _, other := range slices.Sorted(maps.Keys(known)) {
			plural, of, _ := strings.Cut(other, ".")
			if t := known[other]; plural == resource || t != nil && (t.Singular == resource ||
				strings.ToLower(t.Kind) == resource || slices.Contains(t.ShortNames, resource)) {
				meant = append(meant, other)
			}
			others = others && of != group
		}
		switch {
		case len(meant) > 0:
			return nil, fmt.Errorf("--retention: no type %s is followed or stored: did you mean %s?", name,
				strings.Join(meant, " or "))
		case !others:
			return nil, fmt.Errorf("--retention: no type %s is followed or stored: remove it, or give its plural and its group, "+
				"such as deployments.apps", name)
		}
		awaited = append(awaited, name)
	}
	return awaited, nil
}

// retaining is a database with times for some types. Nothing is written before the first Open has checked these types.
type retaining struct {
	database
	retention *retention
	resources []syncResource
	report    *syncReport
	checked   bool
}

func (d *retaining) Open(ctx context.Context, streams []sink.Stream) ([]sink.Stored, error) {
	stored, err := d.database.Open(ctx, streams)
	if err != nil || d.checked {
		return stored, err
	}
	if err := d.check(ctx, streams); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.checked = true
	return stored, nil
}

func (d *retaining) check(ctx context.Context, streams []sink.Stream) error {
	all, err := d.Status(ctx)
	if err != nil {
		return err
	}
	awaited, err := d.retention.checkTypes(streams, all, func(group string) bool {
		brings := func(r syncResource) bool { return group != "" && (r.all || r.group == group) }
		return slices.ContainsFunc(d.resources, brings)
	})
	if err != nil {
		return exit.Usage(err)
	}
	for _, name := range awaited {
		d.report.printf("--retention: no type %s is followed or stored yet", name)
	}
	return nil
}

// Check is that of the database.
func (d *retaining) Check(ctx context.Context) error {
	if c, ok := d.database.(sink.Checker); ok {
		return c.Check(ctx)
	}
	return nil
}
