package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/informer/health"
	"github.com/keepwatch/keepwatch/store"
)

// Reading is how an informer reads its source.
type Reading string

const (
	ByClient Reading = "client" // client-go's dynamic client lists, watches and decodes
	Directly Reading = "direct" // the informer does that itself
)

// informed is an informer on a source of its own over HTTP, with four handlers: one only
// listens, one is slow, one panics, and one is removed and replaced.
type informed struct {
	director *Director
	source   *Source
	phase    time.Duration
	shared   *clientgo.Shared
	filter   func(keepwatch.Object) bool // nil for all; the transform rejects the other objects
	steady   *listener
	others   []*listener
	panics   int // that were decided; only the panicking listener's goroutine uses it

	// transcript has the steady handler's notifications as deliveries, one for each observe.
	transcript *consumer
	relists    uint64                                       // when the informer was last live
	seen       map[keepwatch.Key]*unstructured.Unstructured // at the last observe
	problems   []string
}

var errTransform = errors.New("not this one")

func newInformed(s *stage, m Mutant) *informed {
	i := &informed{director: s.director, phase: 61 * time.Microsecond}
	// the informer has its own idle timeout
	i.source = &Source{world: s.world, director: s.director, name: "informed/source", settings: s.settings.calm()}
	i.source.breaches.detections, i.source.lateRevision = func() int { return 0 }, func(keepwatch.Revision) {}
	cfg := &rest.Config{Host: "http://sim", QPS: -1, Transport: api{m.source(i.source)}}
	options := []clientgo.Option{clientgo.Seed(s.settings.Seed)}
	if s.settings.Informer == Directly {
		var direct clientgo.Option
		cfg, direct = clientgo.Direct(cfg)
		options = append(options, direct)
	}
	group := clientgo.NewGroup(options...)
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		panic(err)
	}
	objects := client.Resource(things)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, options)
		},
		WatchFuncWithContext: objects.Watch,
	}
	i.shared = group.NewSharedIndexInformer(lw, &unstructured.Unstructured{}, 0,
		cache.Indexers{"color": color}).(*clientgo.Shared)
	if s.settings.Rejects {
		i.filter = Red
		_ = i.shared.SetTransform(rejectBlue)
	}
	i.transcript = &consumer{name: "informed", world: s.world, steady: true, filter: store.Filter{Match: i.filter}}
	i.steady = &listener{name: "steady"}
	slow := &listener{name: "slow", then: i.sleep}
	panicking := &listener{name: "panicking", then: i.panic}
	i.others = []*listener{slow, panicking, {name: "guest"}}
	for _, l := range append([]*listener{i.steady}, i.others...) {
		l.register(i.shared)
	}
	return i
}

func color(value any) ([]string, error) {
	return []string{object(value.(*unstructured.Unstructured)).color}, nil
}

func rejectBlue(value any) (any, error) {
	if o := object(value.(*unstructured.Unstructured)); !Red(o) {
		return nil, errTransform
	}
	return value, nil
}

func (i *informed) sleep() {
	if x := i.director.Decide("informed/slow", AtTurn); x.Choice != "" {
		time.Sleep(time.Duration(1+x.Arg%90)*time.Second + i.phase)
	}
}

func (i *informed) panic() {
	if x := i.director.Decide("informed/panicking", AtTurn); x.Choice != "" {
		i.panics++
		panic("as was decided")
	}
}

// observePeriod is the time between two calls of observe.
const observePeriod = 7*time.Second + 1013*time.Nanosecond

// run runs the informer until ctx is done.
func (i *informed) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { i.shared.RunWithContext(ctx) })
	for sleep(ctx, observePeriod) {
		i.observe()
		if x := i.director.Decide("informed/guest", AtTurn); x.Choice != "" {
			i.replaceGuest()
		}
	}
	running.Wait()
	i.transcript.record(check.Ended{Err: context.Cause(ctx), Asked: context.Cause(ctx), At: time.Now()})
	i.conclude()
}

// replaceGuest removes the guest handler and adds another one.
func (i *informed) replaceGuest() {
	guest := i.others[len(i.others)-1]
	if _, _, _, ok := guest.received(); !ok {
		return
	}
	guest.remove(i.shared)
	next := &listener{name: "guest"}
	i.others = append(i.others, next)
	next.register(i.shared)
}

// conclude checks the stopped informer.
func (i *informed) conclude() {
	if !i.shared.IsStopped() {
		i.problem("it is not stopped")
	}
	if n := i.shared.Status().Panics; n != uint64(i.panics) {
		i.problem("it counts %d of %d panics", n, i.panics)
	}
	for _, l := range append([]*listener{i.steady}, i.others...) {
		select {
		case <-l.handle.(interface{ ShutdownChan() <-chan struct{} }).ShutdownChan():
		default:
			i.problem("%s is not shut down", l.name)
		}
		i.problems = append(i.problems, l.problems...)
	}
}

func (i *informed) problem(format string, args ...any) {
	i.problems = append(i.problems, fmt.Sprintf(format, args...))
}

// observe compares the states of the handlers with the cache, and records the steady
// handler's notifications since the last time for the oracle. No other actor acts in that
// instant, so a handler without a running call has received everything that the cache has.
func (i *informed) observe() {
	status := i.shared.Status()
	at, err := keepwatch.ParseRevision(status.ResourceVersion)
	if err != nil {
		return // before the first list
	}
	for _, l := range i.others {
		if _, _, state, ok := l.received(); ok && !l.removed {
			i.compare(l.name, state)
		}
	}
	news, finalUnknown, state, ok := i.steady.received()
	if !ok {
		return
	}
	i.compare(i.steady.name, state)
	listed := i.relisted(status)
	if finalUnknown && !listed && i.filter == nil && len(i.source.breaches.list()) == 0 {
		i.problem("a final state up to %d is unknown, but there was no list", at)
	}
	switch {
	case at == i.transcript.cursor.Revision && len(news) == 0 && !(listed && i.reason() == keepwatch.GapRewind):
		return // otherwise it may be the same revision of another epoch
	case finalUnknown || listed || i.source.silence.Load() > 0:
		// A server whose watches were silent before their first bookmark looks like one that sends none.
		i.receive(at, keepwatch.Gap{From: i.transcript.cursor.Revision, To: at, Reason: i.reason(),
			Changes: i.difference(news, state, at)})
	default:
		i.receive(at, keepwatch.Batch{From: i.transcript.cursor.Revision, To: at, Changes: news})
	}
	i.seen = state
	i.recordCache(at)
}

// relisted reports whether there may have been a list since the last observe.
func (i *informed) relisted(status health.Status) bool {
	var relists uint64
	for _, n := range status.Relists {
		relists += n
	}
	listed := i.transcript.cursor.Revision == 0 || relists != i.relists
	if status.State == health.Live || status.State == health.Quiet {
		i.relists = relists
	}
	return listed
}

// reason returns the reason of a gap. After a restore, or a breach that looks like one, any
// gap may be a rewind.
func (i *informed) reason() keepwatch.GapReason {
	back := func(l Breach) bool { return l.Fault == "stale-consistent" }
	if _, epoch := i.transcript.world.Head(); epoch > 0 || slices.ContainsFunc(i.source.breaches.list(), back) {
		return keepwatch.GapRewind
	}
	return keepwatch.GapExpired
}

func (i *informed) receive(at keepwatch.Revision, d keepwatch.Delivery) {
	i.transcript.cursor.Revision = at
	i.transcript.events += len(changes(d))
	i.transcript.record(check.Received{Delivery: d, At: time.Now()})
}

// difference returns the changes from the state of the last observe to this one.
func (i *informed) difference(news []keepwatch.Change, now map[keepwatch.Key]*unstructured.Unstructured,
	at keepwatch.Revision) []keepwatch.Change {
	last := map[keepwatch.UID]*Object{} // of the deleted objects
	for _, c := range news {
		if c.Type == keepwatch.Deleted {
			last[c.Object.UID()] = plain(c.Object)
		}
	}
	var all []keepwatch.Change
	for key, before := range i.seen {
		if after := now[key]; after == nil || after.GetUID() != before.GetUID() {
			o := last[keepwatch.UID(before.GetUID())]
			if o == nil {
				i.problem("%v was deleted without a notification", object(before))
				o = object(before)
			}
			all = append(all, keepwatch.Change{Type: keepwatch.Deleted, Revision: at, Object: o})
		}
	}
	for key, after := range now {
		o := object(after)
		switch before := i.seen[key]; {
		case before == nil || before.GetUID() != after.GetUID():
			all = append(all, keepwatch.Change{Type: keepwatch.Added, Revision: o.revision, Object: o})
		case *object(before) != *o:
			all = append(all, keepwatch.Change{Type: keepwatch.Modified, Revision: o.revision, Object: o})
		}
	}
	slices.SortStableFunc(all, func(a, b keepwatch.Change) int { return a.Object.Key().Compare(b.Object.Key()) })
	return all
}

// compare checks that a handler's state equals the cache.
func (i *informed) compare(name string, state map[keepwatch.Key]*unstructured.Unstructured) {
	list := i.shared.GetStore().List()
	if len(list) != len(state) {
		i.problem("the cache has %d objects, %s has %d", len(list), name, len(state))
	}
	for _, value := range list {
		u := value.(*unstructured.Unstructured)
		if current := state[object(u).key]; current != u {
			i.problem("the cache has %v, %s has %v", object(u), name, current)
		}
	}
}

// recordCache records the cache, and checks its index.
func (i *informed) recordCache(at keepwatch.Revision) {
	shown := check.Shown{Revision: at}
	reds := 0
	for _, value := range i.shared.GetStore().List() {
		o := object(value.(*unstructured.Unstructured))
		shown.Objects = append(shown.Objects, o)
		if Red(o) {
			reds++
		}
	}
	if red, err := i.shared.GetIndexer().ByIndex("color", "red"); err != nil || len(red) != reds {
		i.problem("the index finds %d of %d red objects: %v", len(red), reds, err)
	}
	i.transcript.record(shown)
}
