package operator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer"
)

// change is a change of one object.
type change struct {
	typ      keepwatch.ChangeType
	revision keepwatch.Revision
	object   *unstructured.Unstructured // shared: it must not be changed
	initial  bool                       // part of the first list
}

// objectSource delivers the objects of one resource to an operator.
type objectSource interface {
	// run delivers every object and every change, those of one name in order and not
	// concurrently, until ctx is done or an error that cannot be retried occurs. It calls
	// listed once the first list was delivered.
	run(ctx context.Context, deliver func(change), listed func()) error
	// cached returns the newest state of an object, which is at least the delivered one.
	// It is shared: it must not be changed.
	cached(key keepwatch.Key) (*unstructured.Unstructured, bool)
	// healthy returns an error with the reason if the source has not been current for longer
	// than grace.
	healthy(grace time.Duration) error
}

// informers is the source of a real API: one informer, or one for each namespace.
type informers struct {
	each []*informer.Informer[*unstructured.Unstructured]
}

// newInformers returns the source of an operator. The informers are compact unless timers
// or daemons need the objects decoded.
func newInformers(cfg *rest.Config, k kind, op *Operator) (*informers, error) {
	set := op.set
	f := new(informers)
	for _, ns := range set.followed(k.namespaced) {
		options := []informer.Option{
			informer.Resource(k.resource), informer.Namespace(ns), informer.InGroup(op.group),
			informer.StartupDeadline(set.startupDeadline), informer.DropManagedFields(),
		}
		if !op.hasBackground() {
			options = append(options, informer.Compact())
		}
		i, err := informer.New[*unstructured.Unstructured](cfg, options...)
		if err != nil {
			return nil, err
		}
		f.each = append(f.each, i)
	}
	return f, nil
}

// followed returns the namespaces that an operator follows, each once: two informers of one would deliver each change
// twice. Only the empty name is all.
func (s settings) followed(namespaced bool) []string {
	if !namespaced || len(s.namespaces) == 0 || slices.Contains(s.namespaces, "") {
		return []string{""}
	}
	return slices.Compact(slices.Sorted(slices.Values(s.namespaces)))
}

// meet reports whether two operators follow a common namespace.
func meet(a, b []string) bool {
	return a[0] == "" || b[0] == "" || slices.ContainsFunc(a, func(ns string) bool { return slices.Contains(b, ns) })
}

func (f *informers) run(ctx context.Context, deliver func(change), listed func()) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	errs := make([]error, len(f.each))
	var registrations []*informer.Registration
	for _, i := range f.each {
		r, err := i.Handle(func(_ context.Context, c informer.Change[*unstructured.Unstructured]) error {
			deliver(change{c.Type, c.Revision, c.Object, c.Initial})
			return nil
		})
		if err != nil {
			return err
		}
		registrations = append(registrations, r)
	}
	for n, i := range f.each {
		running.Go(func() {
			errs[n] = i.Run(ctx)
			stop()
		})
	}
	running.Go(func() {
		for _, r := range registrations {
			select {
			case <-r.Synced():
			case <-ctx.Done():
				return
			}
		}
		listed()
	})
	running.Wait()
	return errors.Join(errs...)
}

func (f *informers) cached(key keepwatch.Key) (*unstructured.Unstructured, bool) {
	for _, i := range f.each {
		if u, ok := i.Get(key.Namespace, key.Name); ok {
			return u, true
		}
	}
	return nil, false
}

func (f *informers) healthy(grace time.Duration) error {
	var errs []error
	for _, i := range f.each {
		errs = append(errs, i.Status().Healthy(grace))
	}
	return errors.Join(errs...)
}
