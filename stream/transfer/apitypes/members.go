package apitypes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/backoff"
	"github.com/keepwatch/keepwatch/internal/pings"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// members keeps the resources of a transfer equal to the types that the server has in the groups of the patterns, or in
// all. A type joins when the server shows it and lists its objects. It leaves when full answers do not show it and its
// definition was deleted, or cannot be read for Options.LeaveAfter.
type members struct {
	*Transfer
	// waits are between two requests for the types after a CustomResourceDefinition has changed: a server shows a new type
	// some time later.
	waits    backoff.Exponential
	groups   rest.Interface
	defined  *definitions
	all      map[stream.Identity]*member
	problems map[string]string // what was printed last of each type that can neither join nor leave
	started  bool              // the transfer runs
}

// member is a type that is followed, or was by an earlier process.
type member struct {
	sink.Stream
	shown  *Resource // nil if no server has shown it to this process
	absent time.Time // since when the server has not shown it, zero if it does
	// changed is when a server last showed the type in another way, and rest how long further changes are ignored from
	// then on.
	changed time.Time
	rest    time.Duration
}

// maxRest bounds the time between two changes of a type that is shown now in one way, now in another: servers of two
// versions stand behind one address. Each change opens the sink again.
const maxRest = 30 * time.Minute

// restAfter returns the rest after another change.
func (m *member) restAfter(least time.Duration) time.Duration {
	if m.rest > 0 && time.Since(m.changed) < 4*m.rest {
		return min(2*m.rest, maxRest)
	}
	return least
}

func newMembers(t *Transfer) (*members, error) {
	config := pings.Config(t.Config)
	types, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(config)
	return &members{
		Transfer: t, waits: backoff.Exponential{First: min(time.Second, t.RequestEvery), Max: t.RequestEvery},
		groups: types.RESTClient(), defined: &definitions{types.RESTClient(), objects},
		all: map[stream.Identity]*member{}, problems: map[string]string{},
	}, err
}

// String returns the patterns.
func (w *members) String() string {
	var names []string
	for _, p := range w.Patterns {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// follow requests the types whenever a CustomResourceDefinition of the groups changes, and every Options.RequestEvery,
// until ctx is done. It first adds the types that the sink has from an earlier process.
func (w *members) follow(ctx context.Context, opened <-chan struct{},
	stored func(context.Context) ([]sink.Status, error)) {
	w.started = true
	changed := make(chan struct{}, 1)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		w.watchCRDs(ctx, changed)
	}()
	defer func() { <-watching }()
	timer := time.NewTimer(w.waits.Wait(0))
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
		w.change(changes)
		if !settled && known && err == nil && !w.pending() {
			settled = true
			w.typesSettled()
		}
		timer.Reset(w.waits.Wait(attempt))
	}
}

// watchCRDs signals changes of the groups' CustomResourceDefinitions until ctx is done, or the server forbids the first
// list of them.
func (w *members) watchCRDs(ctx context.Context, changed chan<- struct{}) {
	source, err := kube.New(w.Config, kube.Options{
		Resource: crdResource, Representation: kube.MetadataOnly, PageSize: w.Source.PageSize,
		IdleTimeout: w.Source.IdleTimeout,
	})
	if err == nil {
		var follower *stream.Stream
		if follower, err = stream.New(typeSignal{w.Patterns, changed}, stream.InMemory(), stream.Options{}); err == nil {
			following, forbidden := context.WithCancelCause(ctx)
			defer forbidden(nil)
			err = reflector.New(source, follower, reflector.Options{StartupDeadline: -1, Observe: func(n reflector.Notice) {
				if n.Failure != nil && n.Failure.Kind == keepwatch.Forbidden && n.Revision == 0 {
					forbidden(n.Failure)
				}
			}}).Run(following)
		}
	}
	if ctx.Err() == nil {
		w.logf("%v; the resource types are requested every %v", err, w.RequestEvery)
	}
}

// typeSignal is a sink that signals changes of the CustomResourceDefinitions of the patterns' groups.
type typeSignal struct {
	patterns []Pattern
	changed  chan<- struct{}
}

func (s typeSignal) Write(m stream.Message) error {
	e, ok := m.(stream.Event)
	if !ok || !slices.ContainsFunc(s.patterns, func(p Pattern) bool { return p.matches(e.Object.Key().Name) }) {
		return nil
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return nil
}

func (s typeSignal) Flush() error { return nil }

// selects reports whether the types that a pattern stands for have a resource: it is not named, and the pattern *
// leaves groups to the patterns that name them.
func (w *members) selects(p Pattern, resource string) bool {
	return p.matches(resource) && !w.named[resource] &&
		!(p.Group == "" && slices.ContainsFunc(w.Patterns, func(other Pattern) bool {
			return other.Group != "" && other.matches(resource)
		}))
}

// addStored adds the types of the patterns that the sink has from an earlier process.
func (w *members) addStored(all []sink.Status) {
	for _, s := range all {
		for _, p := range w.Patterns {
			if !w.selects(p, s.ID.Resource) || s.ID.Namespace != p.Namespace {
				continue
			}
			id := stream.Identity{
				Cluster: w.Cluster, Resource: s.ID.Resource, Namespace: s.ID.Namespace,
				LabelSelector: p.LabelSelector, FieldSelector: p.FieldSelector,
			}
			if w.all[id] == nil {
				w.all[id] = &member{Stream: sink.Stream{ID: id, Line: s.Line}}
			}
		}
	}
}

// pending reports whether there is a type that may have left.
func (w *members) pending() bool {
	for _, m := range w.all {
		if !m.absent.IsZero() {
			return true
		}
	}
	return false
}

// problem prints an error about something, once in a row, unless ctx is done.
func (w *members) problem(ctx context.Context, about string, err error) {
	switch text := fmt.Sprint(err); {
	case ctx.Err() != nil:
	case err == nil:
		delete(w.problems, about)
	case w.problems[about] != text:
		w.problems[about] = text
		w.logf("%s: %s; retrying within %v", about, text, w.RequestEvery)
	}
}

// request returns the types that have joined, changed and left since the last request. It returns them also with an
// error, which says what the server did not show.
func (w *members) request(ctx context.Context) (changes []transfer.Resource, incomplete error) {
	shown := map[stream.Identity]*Resource{}
	var order []stream.Identity
	var isUnknown []func(group string) bool // whether the server did not show everything of a group
	for _, p := range w.Patterns {
		found, unknown, err := w.typesOf(ctx, p)
		incomplete, isUnknown = cmp.Or(incomplete, err), append(isUnknown, unknown)
		for _, t := range found {
			if p.Namespace != "" && !t.Shown.Namespaced {
				continue
			}
			r := p.resource(t)
			if id := r.Identity(w.Cluster); w.selects(p, id.Resource) && shown[id] == nil {
				shown[id], order = &r, append(order, id)
			}
		}
	}
	changes = w.leave(ctx, shown, func(group string) bool {
		return slices.ContainsFunc(isUnknown, func(is func(string) bool) bool { return is(group) })
	})
	for _, id := range order {
		r, err := w.join(ctx, id, *shown[id])
		w.problem(ctx, id.Resource, err)
		if r != nil {
			changes = append(changes, *r)
		}
	}
	return changes, incomplete
}

// typesOf returns the types of a pattern's groups, and of which groups the server did not show everything.
func (w *members) typesOf(ctx context.Context, p Pattern) (found []Type, unknown func(group string) bool, err error) {
	if p.Group == "" {
		var groups map[string]bool
		found, groups, err = allTypes(ctx, w.groups)
		return found, func(group string) bool { return err != nil && (groups == nil || groups[group]) }, err
	}
	found, err = Of(ctx, w.groups, p.Group)
	return found, func(group string) bool { return err != nil && group == p.Group }, err
}

// join returns the resource of a type that is shown, nil if the transfer has it already. A type that is shown in
// another way, after its definition was replaced for example, takes the place of the former one, soon if that did not
// repeat.
func (w *members) join(ctx context.Context, id stream.Identity, of Resource) (*transfer.Resource, error) {
	before := w.all[id]
	if before != nil {
		before.absent = time.Time{}
		if now := before.shown; now != nil && (time.Since(before.changed) < before.rest ||
			now.Type.Resource == of.Type.Resource && reflect.DeepEqual(now.stored(), of.stored())) {
			return nil, nil
		}
	}
	r, err := w.resource(of)
	if err != nil {
		return nil, err
	}
	if r.Line, err = w.lineOf(ctx, of); err != nil {
		if failure, ok := errors.AsType[*keepwatch.Failure](err); ok && failure.Kind == keepwatch.Absent {
			err = nil // the server shows a type a moment before it serves it
		}
		return nil, err
	}
	r.Patient = true
	m := &member{Stream: r.Stream, shown: &of}
	if before != nil && before.shown != nil {
		m.changed, m.rest = time.Now(), before.restAfter(w.RequestEvery)
	}
	w.all[id] = m
	if w.started {
		w.logf("%s joins", of.Scope())
	}
	return r, nil
}

// leave returns the resources of the members that have left: full answers do not show them.
func (w *members) leave(ctx context.Context, shown map[stream.Identity]*Resource,
	unknown func(group string) bool) (gone []transfer.Resource) {
	var leaving []*member
	for id, m := range w.all {
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
			w.drop(id)    // its source must not be asked for the newest revision
			m.shown = nil // if it is back before that is known, it joins again, with its source
		}
	}
	for _, m := range leaving {
		newest, err := w.newest(ctx, m.Line)
		w.problem(ctx, m.ID.Resource, err)
		if err != nil {
			continue
		}
		delete(w.all, m.ID)
		w.logf("the server has no %s any more: what was delivered of it is ended", m.ID.Resource)
		gone = append(gone, transfer.Resource{Stream: m.Stream, Gone: newest})
	}
	return gone
}

// left reports whether a type that a full answer does not show has left.
func (w *members) left(ctx context.Context, m *member) (bool, error) {
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
		w.logf("the server does not show %s: if that lasts for %v, what was delivered of it is ended", m.ID.Resource,
			w.LeaveAfter)
	}
	return time.Since(m.absent) >= w.LeaveAfter, nil
}

// isBuiltin reports whether a resource may be the server's own: it has no definition, and another replica of the
// server, of another version, may not have it.
func isBuiltin(resource string) bool {
	_, group, _ := strings.Cut(resource, ".")
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}
