package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// batchBytes bounds a transaction of the changes of one type. Under load, a sink stores the more changes per second
// the fewer transactions they need.
const batchBytes = 4 << 20

// syncRun is a transfer, and the resources in it.
type syncRun struct {
	*syncOptions
	config    *rest.Config
	cluster   stream.Cluster
	namespace string // of patterns without one
	report    *syncReport
	transfer  *transfer.Transfer
	cancel    context.CancelCauseFunc
	named     map[string]bool // the types that are followed by their names

	mu      sync.Mutex
	members []member
	settled bool // the types of patterns are known
}

// member is a resource of the transfer. Its probe asks for revisions, beside the source that the reflector uses.
type member struct {
	sink.Stream
	probe keepwatch.Source
}

// destination is where the resources are stored.
type destination struct {
	open    func(*syncRun) (sink.Sink, error)
	report  *syncReport
	started func(*transfer.Transfer) // is called before the transfer runs, if set
}

// follow stores the resources in one sink until ctx is done. It returns the reason of the end, never nil.
func (o *syncOptions) follow(ctx context.Context, resources []syncResource, to destination) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	report := to.report
	r, err := o.newRun(ctx, report)
	if err != nil {
		return err
	}
	r.cancel = cancel
	target, err := to.open(r)
	if err != nil {
		return err
	}
	targets, err := o.resolveAll(ctx, resources, report.start.retryRequest)
	if err != nil {
		return err
	}
	all, err := r.resources(ctx, targets)
	if err != nil {
		return err
	}
	types, joined, err := r.types(ctx, resources)
	if err != nil {
		return err
	}
	opened := make(chan struct{}, 1)
	r.transfer = transfer.New(target, append(all, joined...), transfer.Options{
		Opened: func(resources []transfer.Resource) {
			report.opened(resources)
			select {
			case opened <- struct{}{}:
			default:
			}
		},
		Observe: report.observe, Retrying: report.retrying, Refused: report.refused, Committed: report.committed, Cut: r.cut,
	})
	if to.started != nil {
		to.started(r.transfer)
	}
	if r.settled = types == nil; types != nil {
		var typesEnded sync.WaitGroup
		typesEnded.Go(func() { types.follow(ctx, opened, statusOf(target)) })
		defer typesEnded.Wait()
	}
	err = r.transfer.Run(ctx)
	cancel(err)
	report.end()
	return err
}

// statusOf returns the function that reads what a sink has, also from earlier processes.
func statusOf(s sink.Sink) func(context.Context) ([]sink.Status, error) {
	if reader, ok := s.(sink.Reader); ok {
		return reader.Status
	}
	return func(context.Context) ([]sink.Status, error) { return nil, nil }
}

// newRun connects to the server, and identifies its cluster.
func (o *syncOptions) newRun(ctx context.Context, report *syncReport) (*syncRun, error) {
	config, err := connection(o.config)
	if err != nil {
		return nil, err
	}
	r := &syncRun{syncOptions: o, config: config, report: report, named: map[string]bool{}}
	if r.namespace, err = o.namespace(); err != nil {
		return nil, err
	}
	r.cluster, err = clusterOf(ctx, config, report.start.retryRequest)
	return r, err
}

// resources returns the streams of the targets, and their lines of revisions.
func (r *syncRun) resources(ctx context.Context, targets []*syncTarget) (all []transfer.Resource, err error) {
	for _, t := range targets {
		r.named[t.name()] = true
		resource, err := r.resource(t)
		if err != nil {
			return nil, err
		}
		err = r.report.start.retryRequest(ctx, func(ctx context.Context) (err error) {
			resource.Line, err = r.lineOf(ctx, t)
			if failure, ok := errors.AsType[*keepwatch.Failure](err); ok && reflector.EndsStartup(failure.Kind) {
				return refusal{err}
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
func (r *syncRun) types(ctx context.Context, resources []syncResource) (w *syncTypes, joined []transfer.Resource, err error) {
	var patterns []*syncResource
	for i := range resources {
		if resources[i].pattern() {
			patterns = append(patterns, &resources[i])
		}
	}
	if len(patterns) == 0 {
		return nil, nil, nil
	}
	if w, err = newSyncTypes(r, patterns); err != nil {
		return nil, nil, err
	}
	err = r.report.start.retryRequest(ctx, func(ctx context.Context) (err error) {
		if joined, err = w.request(ctx); len(joined) > 0 {
			return nil // the rest is requested again while these are followed
		}
		return err
	})
	if err == nil && len(joined) == 0 {
		r.report.printf("no type of %s yet", w)
	}
	return w, joined, err
}

// resource returns the stream of a target, without its line.
func (r *syncRun) resource(t *syncTarget) (*transfer.Resource, error) {
	r.report.add(t, t.identityIn(r.cluster))
	options := r.sourceOptions(t)
	id := t.identityIn(r.cluster)
	options.WatchTimeout = func() time.Duration { return t.status.watchTimeout(r.transfer.Stale(id)) }
	source, err := newSource(t.resourceTarget, options)
	if err != nil {
		return nil, err
	}
	resource := &transfer.Resource{Stream: sink.Stream{ID: id, Type: t.storedType()}, Source: source}
	projection, err := t.projection(t.isSecret())
	if projection != nil {
		resource.Project = projection.Apply
	}
	return resource, err
}

func (o *syncOptions) sourceOptions(t *syncTarget) kube.Options {
	options := kube.Options{
		Representation: o.representation, PageSize: o.pageSize(), IdleTimeout: o.idleTimeout, DropManagedFields: len(t.Drop) > 0, BatchBytes: batchBytes,
	}
	if t.MetadataOnly {
		options.Representation = kube.MetadataOnly
	}
	return options
}

// lineOf returns the line of revisions of a target, which becomes a member of it. Errors are of the server.
func (r *syncRun) lineOf(ctx context.Context, t *syncTarget) (int, error) {
	probe, err := newSource(t.resourceTarget, r.sourceOptions(t))
	if err != nil {
		return 0, err
	}
	id := t.identityIn(r.cluster)
	lines, sources := r.lines(id)
	var line int
	if len(sources) == 0 || t.OtherEtcd {
		line = len(lines)
		_, err = probe.Newest(ctx) // the server must list the objects
	} else {
		line, err = transfer.LineOf(ctx, sources, probe)
	}
	if err != nil {
		return 0, err
	}
	if line < len(lines) {
		line = lines[line]
	} else {
		for line = 0; slices.Contains(lines, line); {
			line++
		}
	}
	r.drop(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members = append(r.members, member{sink.Stream{ID: id, Line: line}, probe})
	return line, nil
}

// lines returns the number of each line, and a source of it that is not of the stream id.
func (r *syncRun) lines(id stream.Identity) (lines []int, sources []keepwatch.Source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.members {
		if m.ID != id && !slices.Contains(lines, m.Line) {
			lines, sources = append(lines, m.Line), append(sources, m.probe)
		}
	}
	return lines, sources
}

// newest returns the newest revision of a line. If the line has no member it returns 1, which is below every revision of
// an object.
func (r *syncRun) newest(ctx context.Context, line int) (keepwatch.Revision, error) {
	lines, sources := r.lines(stream.Identity{})
	if i := slices.Index(lines, line); i >= 0 {
		return sources[i].Newest(ctx)
	}
	return 1, nil
}

// drop removes the member of a stream.
func (r *syncRun) drop(id stream.Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members = slices.DeleteFunc(r.members, func(m member) bool { return m.ID == id })
}

// change changes the resources of the transfer.
func (r *syncRun) change(changes []transfer.Resource) {
	if len(changes) > 0 {
		r.transfer.Change(changes)
	}
}

// cut reports a cut, and ends the run if that was its purpose.
func (r *syncRun) cut(line int, cut sink.Cut) {
	r.report.cut(r.transfer.Status(), line, cut)
	r.endWhenSynced()
}

// typesSettled is called when the types of patterns are known.
func (r *syncRun) typesSettled() {
	r.mu.Lock()
	r.settled = true
	r.mu.Unlock()
	r.endWhenSynced()
}

// endWhenSynced ends the run with --until-synced when everything is complete.
func (r *syncRun) endWhenSynced() {
	r.mu.Lock()
	settled := r.settled
	r.mu.Unlock()
	if r.untilSynced && settled && r.transfer.Status().Complete() {
		r.cancel(errSynced)
	}
}
