package apitypes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/startup"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// ErrSynced ends a transfer with Options.UntilSynced.
var ErrSynced = errors.New("synced")

// Options configure a transfer.
type Options struct {
	// Config is the connection to the API server.
	Config *rest.Config
	// Cluster is the identity of the objects' cluster.
	Cluster stream.Cluster
	// Resources are followed by their names. Run ends with the error of one that the server refuses at the start.
	Resources []Resource
	// Patterns select the types that join and leave.
	Patterns []Pattern
	// Source has the representation, the page size, the batch size and the idle timeout of all sources.
	Source kube.Options
	// WatchTimeout returns how long the server keeps the next watch of a stream open, 0 for some minutes. stale says
	// that the revision of the stream is behind that of others on its line, so that their cut waits for it: servers send a
	// bookmark, also of a type without changes, before the end of a watch. nil is [WatchTimeout].
	WatchTimeout func(id stream.Identity, stale bool) time.Duration
	// RequestEvery is the longest time between two requests for the types of patterns. 0 is [DefaultRequestEvery].
	RequestEvery time.Duration
	// LeaveAfter is how long the server must not have shown a type until the type leaves, if nothing says that its
	// definition was deleted. It is longer than a rolling restart of a server's replicas. 0 is [DefaultLeaveAfter].
	LeaveAfter time.Duration
	// UntilSynced ends Run with [ErrSynced] when all resources are complete at one revision, and with another error if
	// there are none: the server has no type of the patterns.
	UntilSynced bool

	// Hooks are called while the resources are stored.
	Hooks transfer.Options
	// Added, if set, is called with each resource before it is in the transfer.
	Added func(stream.Identity, Resource)
	// Started, if set, is called before the transfer runs.
	Started func(*transfer.Transfer)
	// Logf, if set, reports what people should know: types that join and leave, and errors that are retried. Any goroutine
	// calls it.
	Logf func(format string, args ...any)
}

const (
	DefaultRequestEvery = 30 * time.Second
	DefaultLeaveAfter   = 5 * time.Minute
)

// shortWatch is how long a server keeps the watch of a stream open whose revision is to be confirmed.
const shortWatch = 3 * time.Second

// WatchTimeout is the default of Options.WatchTimeout: 3 s for a stale stream.
func WatchTimeout(_ stream.Identity, stale bool) time.Duration {
	if stale {
		return shortWatch
	}
	return 0
}

// Transfer keeps a sink equal to resources of a cluster while Run runs.
type Transfer struct {
	Options
	transfer *transfer.Transfer
	cancel   context.CancelCauseFunc
	named    map[string]bool // the types that are followed by their names

	mu      sync.Mutex
	lines   []lineMember
	settled bool // the types of patterns are known
}

// lineMember is a resource on a line of revisions. Its probe asks for revisions, beside the source that the reflector
// uses.
type lineMember struct {
	sink.Stream
	probe keepwatch.Source
}

// New returns a transfer. It starts nothing.
func New(options Options) *Transfer {
	if options.WatchTimeout == nil {
		options.WatchTimeout = WatchTimeout
	}
	if options.RequestEvery == 0 {
		options.RequestEvery = DefaultRequestEvery
	}
	if options.LeaveAfter == 0 {
		options.LeaveAfter = DefaultLeaveAfter
	}
	t := &Transfer{Options: options, named: map[string]bool{}}
	for _, r := range options.Resources {
		t.named[r.Name()] = true
	}
	return t
}

// Run stores the resources in a sink until ctx is done, a resource is refused at the start, or an error occurs that
// cannot be retried. It returns the reason of the end, never nil. It must be called once.
func (t *Transfer) Run(ctx context.Context, into sink.Sink) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.cancel = cancel
	if t.Source.Definitions == nil {
		definitions, err := kube.NewDefinitions(t.Config)
		if err != nil {
			return err
		}
		t.Source.Definitions = definitions
	}
	all, err := t.resources(ctx)
	if err != nil {
		return err
	}
	types, joined, err := t.types(ctx)
	if err != nil {
		return err
	}
	opened := make(chan struct{}, 1)
	options := t.Hooks
	options.Opened = func(resources []transfer.Resource) {
		if t.Hooks.Opened != nil {
			t.Hooks.Opened(resources)
		}
		select {
		case opened <- struct{}{}:
		default:
		}
	}
	options.Cut = func(line int, cut sink.Cut) {
		if t.Hooks.Cut != nil {
			t.Hooks.Cut(line, cut)
		}
		t.endWhenSynced()
	}
	t.transfer = transfer.New(into, append(all, joined...), options)
	if t.Started != nil {
		t.Started(t.transfer)
	}
	var ended sync.WaitGroup
	if t.settled = types == nil; types != nil {
		ended.Go(func() { types.follow(ctx, opened, statusOf(into)) })
	}
	err = t.transfer.Run(ctx)
	cancel(err)
	ended.Wait()
	if errors.Is(err, ErrSynced) && len(t.Resources) == 0 && len(types.all) == 0 {
		return fmt.Errorf("the server has no type of %s", types)
	}
	return err
}

// statusOf returns the function that reads what a sink has, also from earlier processes.
func statusOf(s sink.Sink) func(context.Context) ([]sink.Status, error) {
	if reader, ok := s.(sink.Reader); ok {
		return reader.Status
	}
	return func(context.Context) ([]sink.Status, error) { return nil, nil }
}

func (t *Transfer) logf(format string, args ...any) {
	if t.Logf != nil {
		t.Logf(format, args...)
	}
}

// resources returns the streams of the named resources, and their lines of revisions.
func (t *Transfer) resources(ctx context.Context) (all []transfer.Resource, err error) {
	for _, r := range t.Resources {
		resource, err := t.resource(r)
		if err != nil {
			return nil, err
		}
		err = startup.Retry(ctx, t.Logf, func(ctx context.Context) (err error) {
			resource.Line, err = t.lineOf(ctx, r)
			if failure, ok := errors.AsType[*keepwatch.Failure](err); ok && reflector.EndsStartup(failure.Kind) {
				return startup.Refused(err)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, *resource)
	}
	return all, nil
}

// types returns what follows the patterns, nil if there are none, and the types that the server has.
func (t *Transfer) types(ctx context.Context) (w *members, joined []transfer.Resource, err error) {
	if len(t.Patterns) == 0 {
		return nil, nil, nil
	}
	if w, err = newMembers(t); err != nil {
		return nil, nil, err
	}
	err = startup.Retry(ctx, t.Logf, func(ctx context.Context) (err error) {
		if joined, err = w.request(ctx); len(joined) > 0 {
			return nil // the rest is requested again while these are followed
		}
		return err
	})
	if err == nil && len(joined) == 0 {
		t.logf("no type of %s yet", w)
	}
	return w, joined, err
}

// resource returns the stream of a resource, without its line.
func (t *Transfer) resource(r Resource) (*transfer.Resource, error) {
	id := r.Identity(t.Cluster)
	if t.Added != nil {
		t.Added(id, r)
	}
	source, err := NewSource(t.Config, r.options(t.Source, func() time.Duration {
		return t.WatchTimeout(id, t.transfer.Stale(id))
	}), r.Pinned)
	if err != nil {
		return nil, err
	}
	return &transfer.Resource{Stream: sink.Stream{ID: id, Type: r.stored()}, Source: source, Project: r.Project}, nil
}

// lineOf returns the line of revisions of a resource, which becomes a member of it. Errors are of the server.
func (t *Transfer) lineOf(ctx context.Context, r Resource) (int, error) {
	probe, err := NewSource(t.Config, r.options(t.Source, nil), r.Pinned)
	if err != nil {
		return 0, err
	}
	id := r.Identity(t.Cluster)
	line, err := t.findLine(ctx, id, r.OtherEtcd, probe)
	if err != nil {
		return 0, err
	}
	t.drop(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, lineMember{sink.Stream{ID: id, Line: line}, probe})
	return line, nil
}

// findLine returns the number of the line of a stream that is on none yet, which may be a new one.
func (t *Transfer) findLine(ctx context.Context, id stream.Identity, otherEtcd bool,
	probe keepwatch.Source) (int, error) {
	lines := t.linesWithout(id)
	compared := false
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		if otherEtcd {
			break
		}
		i, err := transfer.LineOf(ctx, []keepwatch.Source{lines[line]}, probe)
		switch {
		case errors.Is(err, errAbsent):
			continue
		case err != nil:
			return 0, err
		case i == 0:
			return line, nil
		}
		compared = true
	}
	if !compared {
		if _, err := probe.Newest(ctx); err != nil { // the server must list the objects
			return 0, err
		}
	}
	line := 0
	for lines[line].members != nil {
		line++
	}
	return line, nil
}

// linesWithout returns the lines, by their numbers, without the stream id.
func (t *Transfer) linesWithout(id stream.Identity) map[int]lineSource {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := map[int]lineSource{}
	for _, m := range t.lines {
		if m.ID != id {
			lines[m.Line] = lineSource{members: append(lines[m.Line].members, m.probe)}
		}
	}
	return lines
}

// lineSource returns the newest revision of a line: any of its members shows it. It has no other method.
type lineSource struct {
	keepwatch.Source
	members []keepwatch.Source
}

// errAbsent says that the server serves none of the members of a line, which says nothing about other types.
var errAbsent = errors.New("the server serves no resource of the line")

func (s lineSource) Newest(ctx context.Context) (newest keepwatch.Revision, err error) {
	for _, member := range s.members {
		newest, err = member.Newest(ctx)
		if failure, ok := errors.AsType[*keepwatch.Failure](err); !ok || failure.Kind != keepwatch.Absent {
			return newest, err
		}
	}
	return 0, errAbsent
}

// newest returns the newest revision of a line. If the line has no member that is served it returns 1, which is below
// every revision of an object.
func (t *Transfer) newest(ctx context.Context, line int) (keepwatch.Revision, error) {
	newest, err := t.linesWithout(stream.Identity{})[line].Newest(ctx)
	if errors.Is(err, errAbsent) {
		return 1, nil
	}
	return newest, err
}

// drop removes a stream from its line.
func (t *Transfer) drop(id stream.Identity) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = slices.DeleteFunc(t.lines, func(m lineMember) bool { return m.ID == id })
}

// change changes the resources of the transfer.
func (t *Transfer) change(changes []transfer.Resource) {
	if len(changes) > 0 {
		t.transfer.Change(changes)
	}
}

// typesSettled is called when the types of patterns are known.
func (t *Transfer) typesSettled() {
	t.mu.Lock()
	t.settled = true
	t.mu.Unlock()
	t.endWhenSynced()
}

// endWhenSynced ends a run with UntilSynced when everything is complete.
func (t *Transfer) endWhenSynced() {
	t.mu.Lock()
	settled := t.settled
	t.mu.Unlock()
	if t.UntilSynced && settled && t.transfer.Status().Complete() {
		t.cancel(ErrSynced)
	}
}
