package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/backoff"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// typesPeriod is the longest time between two requests for the types of the patterns' groups.
const typesPeriod = 30 * time.Second

// absentFor is how long the server must not have shown a type until the type has left, if nothing says that its definition was
// deleted. It is longer than a rolling restart of a server's replicas. Tests shorten it.
var absentFor = 5 * time.Minute

// typesWaits are the waits between two requests for the types after a CustomResourceDefinition has changed: a server shows
// a new type some time later.
var typesWaits = backoff.Exponential{First: time.Second, Max: typesPeriod}

// syncTypes keeps the resources of a transfer equal to the types that the server has in the groups of the patterns, or in all.
// A type joins when the server shows it and lists its objects. It leaves when full answers do not show it and its definition was
// deleted, or cannot be read for absentFor.
type syncTypes struct {
	run      *syncRun
	patterns []*syncResource
	groups   rest.Interface
	defined  *definitions
	members  map[stream.Identity]*typeMember
	problems map[string]string // what was printed last of each type that can neither join nor leave
	started  bool              // the transfer runs
}

// typeMember is a type that is followed, or was by an earlier process.
type typeMember struct {
	sink.Stream
	target *syncTarget // nil if no server has shown it to this process
	absent time.Time   // since when the server has not shown it, zero if it does
}

func newSyncTypes(r *syncRun, patterns []*syncResource) (*syncTypes, error) {
	types, err := discovery.NewDiscoveryClientForConfig(r.config)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(r.config)
	return &syncTypes{
		run: r, patterns: patterns, groups: types.RESTClient(), defined: &definitions{types.RESTClient(), objects},
		members: map[stream.Identity]*typeMember{}, problems: map[string]string{},
	}, err
}

// String returns the patterns.
func (w *syncTypes) String() string {
	var names []string
	for _, p := range w.patterns {
		names = append(names, p.Resource)
	}
	return strings.Join(names, ", ")
}

// follow requests the types whenever a CustomResourceDefinition of the groups changes, and every typesPeriod, until ctx is
// done. It first adds the types that the sink has from an earlier process.
func (w *syncTypes) follow(ctx context.Context, opened <-chan struct{}, stored func(context.Context) ([]sink.Status, error)) {
	w.started = true
	changed := make(chan struct{}, 1)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		w.watchCRDs(ctx, changed)
	}()
	defer func() { <-watching }()
	timer := time.NewTimer(typesWaits.Wait(0))
	defer timer.Stop()
	attempt, isOpen, known, settled := 0, false, false, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-opened:
			isOpen = true
		case <-changed:
			attempt = 0
		case <-timer.C:
			attempt++
		}
		if isOpen && !known {
			all, err := stored(ctx)
			w.problem(ctx, "what is stored", err)
			if known = err == nil; known {
				opened = nil
				w.addStored(all)
			}
		}
		changes, err := w.request(ctx)
		w.problem(ctx, "the resource types", err)
		w.run.change(changes)
		if !settled && known && err == nil && !w.pending() {
			settled = true
			w.run.typesSettled()
		}
		timer.Reset(typesWaits.Wait(attempt))
	}
}

// watchCRDs signals changes of the groups' CustomResourceDefinitions until ctx is done, or the server refuses to show them.
func (w *syncTypes) watchCRDs(ctx context.Context, changed chan<- struct{}) {
	source, err := kube.New(w.run.config, kube.Options{Resource: crdResource, Representation: kube.MetadataOnly, PageSize: w.run.pageSize(), IdleTimeout: w.run.idleTimeout})
	if err == nil {
		var follower *stream.Stream
		if follower, err = stream.New(typeSignal{w.patterns, changed}, stream.InMemory(), stream.Options{}); err == nil {
			err = reflector.New(source, follower, reflector.Options{}).Run(ctx)
		}
	}
	if ctx.Err() == nil {
		w.run.report.printf("%v; the resource types are requested every %v", err, typesPeriod)
	}
}

// typeSignal is a sink that signals changes of the CustomResourceDefinitions of the patterns' groups.
type typeSignal struct {
	patterns []*syncResource
	changed  chan<- struct{}
}

func (s typeSignal) Write(m stream.Message) error {
	e, ok := m.(stream.Event)
	if !ok || !slices.ContainsFunc(s.patterns, func(p *syncResource) bool { return p.matches(e.Object.Key().Name) }) {
		return nil
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return nil
}

func (s typeSignal) Flush() error { return nil }

// matches reports whether a pattern stands for a resource, widgets.example.com for example. Secrets must be named, and
// Events are stored once, although two groups have them.
func (r *syncResource) matches(resource string) bool {
	_, group, _ := strings.Cut(resource, ".")
	return r.group != "" && group == r.group || r.all && resource != "secrets" && resource != "events.events.k8s.io"
}

// selects reports whether the types that a pattern stands for have a resource: it is not named, and the pattern * leaves
// groups to the patterns that name them.
func (w *syncTypes) selects(p *syncResource, resource string) bool {
	return p.matches(resource) && !w.run.named[resource] && !(p.all && slices.ContainsFunc(w.patterns, func(other *syncResource) bool {
		return !other.all && other.matches(resource)
	}))
}

// addStored adds the types of the patterns that the sink has from an earlier process.
func (w *syncTypes) addStored(all []sink.Status) {
	for _, s := range all {
		for _, p := range w.patterns {
			namespace := cmp.Or(p.Namespace, w.run.namespace)
			if !w.selects(p, s.ID.Resource) || s.ID.Namespace != "" && s.ID.Namespace != namespace {
				continue
			}
			id := stream.Identity{
				Cluster: w.run.cluster, Resource: s.ID.Resource, Namespace: s.ID.Namespace,
				LabelSelector: p.selection.labels, FieldSelector: p.selection.fields,
			}
			if w.members[id] == nil {
				w.members[id] = &typeMember{Stream: sink.Stream{ID: id, Line: s.Line}}
			}
		}
	}
}

// pending reports whether there is a type that may have left.
func (w *syncTypes) pending() bool {
	for _, m := range w.members {
		if !m.absent.IsZero() {
			return true
		}
	}
	return false
}

// problem prints an error about something, once in a row, unless ctx is done.
func (w *syncTypes) problem(ctx context.Context, about string, err error) {
	switch text := fmt.Sprint(err); {
	case ctx.Err() != nil:
	case err == nil:
		delete(w.problems, about)
	case w.problems[about] != text:
		w.problems[about] = text
		w.run.report.printf("%s: %s; retrying within %v", about, text, typesPeriod)
	}
}

// request returns the types that have joined, changed and left since the last request. It returns them also with an error, which
// says what the server did not show.
func (w *syncTypes) request(ctx context.Context) (changes []transfer.Resource, incomplete error) {
	shown := map[stream.Identity]*syncTarget{}
	var order []stream.Identity
	var isUnknown []func(group string) bool // whether the server did not show everything of a group
	for _, p := range w.patterns {
		found, unknown, err := w.typesOf(ctx, p)
		incomplete, isUnknown = cmp.Or(incomplete, err), append(isUnknown, unknown)
		for _, of := range found {
			t := w.target(p, of)
			if id := t.identityIn(w.run.cluster); w.selects(p, id.Resource) && shown[id] == nil {
				shown[id], order = t, append(order, id)
			}
		}
	}
	changes = w.leave(ctx, shown, func(group string) bool {
		return slices.ContainsFunc(isUnknown, func(is func(string) bool) bool { return is(group) })
	})
	for _, id := range order {
		r, err := w.join(ctx, id, shown[id])
		w.problem(ctx, id.Resource, err)
		if r != nil {
			changes = append(changes, *r)
		}
	}
	return changes, incomplete
}

// typesOf returns the types of a pattern's groups, and of which groups the server did not show everything.
func (w *syncTypes) typesOf(ctx context.Context, p *syncResource) (found []groupType, unknown func(group string) bool, err error) {
	if p.all {
		var groups map[string]bool
		found, groups, err = allTypes(ctx, w.groups)
		return found, func(group string) bool { return err != nil && (groups == nil || groups[group]) }, err
	}
	found, err = typesOf(ctx, w.groups, p.group)
	return found, func(group string) bool { return err != nil && group == p.group }, err
}

// join returns the resource of a type that is shown, nil if the transfer has it already.
func (w *syncTypes) join(ctx context.Context, id stream.Identity, t *syncTarget) (*transfer.Resource, error) {
	if m := w.members[id]; m != nil {
		m.absent = time.Time{}
		if m.target != nil && m.target.resource == t.resource {
			return nil, nil
		}
	}
	r, err := w.run.resource(t)
	if err != nil {
		return nil, err
	}
	if r.Line, err = w.run.lineOf(ctx, t); err != nil {
		if failure, ok := errors.AsType[*keepwatch.Failure](err); ok && failure.Kind == keepwatch.Absent {
			err = nil // the server shows a type a moment before it serves it
		}
		return nil, err
	}
	r.Patient = true
	w.members[id] = &typeMember{Stream: r.Stream, target: t}
	if w.started {
		w.run.report.printf("%s joins", t.scope())
	}
	return r, nil
}

// leave returns the resources of the members that have left: full answers do not show them.
func (w *syncTypes) leave(ctx context.Context, shown map[stream.Identity]*syncTarget, unknown func(group string) bool) (gone []transfer.Resource) {
	var leaving []*typeMember
	for id, m := range w.members {
		_, group, _ := strings.Cut(id.Resource, ".")
		switch {
		case shown[id] != nil:
			continue
		case unknown(group):
			m.absent = time.Time{} // the time begins with the next full answer
			continue
		}
		left, err := w.left(ctx, m)
		w.problem(ctx, id.Resource, err)
		if left {
			leaving = append(leaving, m)
			w.run.drop(id) // its source must not be asked for the newest revision
		}
	}
	for _, m := range leaving {
		newest, err := w.run.newest(ctx, m.Line)
		w.problem(ctx, m.ID.Resource, err)
		if err != nil {
			continue
		}
		delete(w.members, m.ID)
		w.run.report.printf("the server has no %s any more: what was delivered of it is ended", m.ID.Resource)
		gone = append(gone, transfer.Resource{Stream: m.Stream, Gone: newest})
	}
	return gone
}

// left reports whether a type that a full answer does not show has left.
func (w *syncTypes) left(ctx context.Context, m *typeMember) (bool, error) {
	state, err := w.defined.of(ctx, m.ID.Resource)
	switch {
	case err != nil:
		return false, err
	case state == hasDefinition:
		m.absent = time.Time{}
		return false, errors.New("its CustomResourceDefinition exists, and the server serves no version of it")
	case state == noDefinition && !isBuiltin(m.ID.Resource):
		return true, nil
	case m.absent.IsZero():
		m.absent = time.Now()
		w.run.report.printf("the server does not show %s: if that lasts for %v, what was delivered of it is ended", m.ID.Resource, absentFor)
	}
	return time.Since(m.absent) >= absentFor, nil
}

// isBuiltin reports whether a resource may be the server's own: it has no definition, and another replica of the server, of
// another version, may not have it.
func isBuiltin(resource string) bool {
	_, group, _ := strings.Cut(resource, ".")
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// target returns what a pattern selects of a type. Another version of it joins in its place.
func (w *syncTypes) target(p *syncResource, of groupType) *syncTarget {
	t := &resourceTarget{
		config: w.run.config, resource: of.resource, kind: of.resource.GroupVersion().WithKind(of.Kind),
		namespaced: of.Namespaced, pinned: true, selection: p.selection, shown: &of.APIResource,
	}
	if of.Namespaced {
		t.namespace = cmp.Or(p.Namespace, w.run.namespace)
	}
	return &syncTarget{resourceTarget: t, syncResource: p}
}
