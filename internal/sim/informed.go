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
	Directly Reading = "direct" // the informer does so itself
)

// informed is an informer as programs have it, on a source of its own over HTTP,
// with handlers that do nothing but listen, take their time, panic, come and go.
type informed struct {
	director *Director
	source   *Source
	phase    time.Duration
	shared   *clientgo.Shared
	filter   func(keepwatch.Object) bool // nil for all; the others the transform rejects
	steady   *listener
	others   []*listener
	panics   int // that were decided; of that listener's goroutine

	// judged is what the steady handler was told, as deliveries: from look to look.
	judged   *consumer
	relists  uint64                                       // when the informer was last seen in good order
	seen     map[keepwatch.Key]*unstructured.Unstructured // at the last look
	problems []string
}

var errTransform = errors.New("not this one")

func newInformed(s *stage, m Mutant) *informed {
	i := &informed{director: s.director, phase: 61 * time.Microsecond}
	i.source = &Source{world: s.world, director: s.director, name: "informed/source", settings: s.settings.calm()} // it has its own patience
	i.source.lies.evidence, i.source.late = func() int { return 0 }, func(keepwatch.Revision) {}
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
	i.shared = group.NewSharedIndexInformer(lw, &unstructured.Unstructured{}, 0, cache.Indexers{"color": color}).(*clientgo.Shared)
	if s.settings.Rejects {
		i.filter = Red
		_ = i.shared.SetTransform(rejectBlue)
	}
	i.judged = &consumer{name: "informed", world: s.world, steady: true, filter: store.Filter{Match: i.filter}}
	i.steady = &listener{name: "steady"}
	slow := &listener{name: "slow", react: i.sleepy}
	panicking := &listener{name: "panicking", react: i.panicky}
	i.others = []*listener{slow, panicking, {name: "guest"}}
	for _, l := range append([]*listener{i.steady}, i.others...) {
		l.listen(i.shared)
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

func (i *informed) sleepy() {
	if x := i.director.Decide("informed/slow", AtTurn); x.Choice != "" {
		time.Sleep(time.Duration(1+x.Arg%90)*time.Second + i.phase)
	}
}

func (i *informed) panicky() {
	if x := i.director.Decide("informed/panicking", AtTurn); x.Choice != "" {
		i.panics++
		panic("as was decided")
	}
}

// lookPeriod is how often somebody looks at the informer from outside.
const lookPeriod = 7*time.Second + 1013*time.Nanosecond

// run runs the informer until ctx is done.
func (i *informed) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { i.shared.RunWithContext(ctx) })
	for sleep(ctx, lookPeriod) {
		i.look()
		if x := i.director.Decide("informed/guest", AtTurn); x.Choice != "" {
			i.change()
		}
	}
	running.Wait()
	i.judged.record(check.Ended{Err: context.Cause(ctx), Asked: context.Cause(ctx), At: time.Now()})
	i.conclude()
}

// change lets a guest leave, and another one come.
func (i *informed) change() {
	guest := i.others[len(i.others)-1]
	if _, _, _, ok := guest.told(); !ok {
		return
	}
	guest.leave(i.shared)
	next := &listener{name: "guest"}
	i.others = append(i.others, next)
	next.listen(i.shared)
}

// conclude looks at what is left of it.
func (i *informed) conclude() {
	if !i.shared.IsStopped() {
		i.wrong("it is not stopped")
	}
	if n := i.shared.Status().Panics; n != uint64(i.panics) {
		i.wrong("it counts %d panics of %d", n, i.panics)
	}
	for _, l := range append([]*listener{i.steady}, i.others...) {
		select {
		case <-l.handle.(interface{ ShutdownChan() <-chan struct{} }).ShutdownChan():
		default:
			i.wrong("%s is not shut down", l.name)
		}
		i.problems = append(i.problems, l.problems...)
	}
}

func (i *informed) wrong(format string, args ...any) {
	i.problems = append(i.problems, fmt.Sprintf(format, args...))
}

// look compares the informer's handlers with its cache, and writes down for the
// judge what the steady one was told since the last time. Nobody else acts in that
// instant, so that who is not in a call has been told all that the cache shows.
func (i *informed) look() {
	status := i.shared.Status()
	at, err := keepwatch.ParseRevision(status.ResourceVersion)
	if err != nil {
		return // before the first list
	}
	for _, l := range i.others {
		if _, _, state, ok := l.told(); ok && !l.removed {
			i.compare(l.name, state)
		}
	}
	news, vague, state, ok := i.steady.told()
	if !ok {
		return
	}
	i.compare(i.steady.name, state)
	listed := i.relisted(status)
	if vague && !listed && i.filter == nil && len(i.source.lies.list()) == 0 {
		i.wrong("up to %d a final state is not known, and nothing was listed", at)
	}
	switch {
	case at == i.judged.cursor.Revision && len(news) == 0 && !(listed && i.reason() == keepwatch.GapRewind):
		return // else it may be the same revision of another epoch
	case vague || listed:
		i.receive(at, keepwatch.Gap{From: i.judged.cursor.Revision, To: at, Reason: i.reason(), Changes: i.difference(news, state, at)})
	default:
		i.receive(at, keepwatch.Batch{From: i.judged.cursor.Revision, To: at, Changes: news})
	}
	i.seen = state
	i.show(at)
}

// relisted reports whether there may have been a list since the last look.
func (i *informed) relisted(status health.Status) bool {
	var relists uint64
	for _, n := range status.Relists {
		relists += n
	}
	listed := i.judged.cursor.Revision == 0 || relists != i.relists
	if status.State == health.Live || status.State == health.Quiet {
		i.relists = relists
	}
	return listed
}

// reason is that of a gap; after a restore any may be due to that, or after a lie that
// looks like one.
func (i *informed) reason() keepwatch.GapReason {
	back := func(l Lie) bool { return l.Fault == "stale-consistent" }
	if _, epoch := i.judged.world.Head(); epoch > 0 || slices.ContainsFunc(i.source.lies.list(), back) {
		return keepwatch.GapRewind
	}
	return keepwatch.GapExpired
}

func (i *informed) receive(at keepwatch.Revision, d keepwatch.Delivery) {
	i.judged.cursor.Revision = at
	i.judged.events += len(changes(d))
	i.judged.record(check.Received{Delivery: d, At: time.Now()})
}

// difference is what leads from the state of the last look to this one.
func (i *informed) difference(news []keepwatch.Change, now map[keepwatch.Key]*unstructured.Unstructured, at keepwatch.Revision) []keepwatch.Change {
	last := map[keepwatch.UID]*Object{} // of what is gone
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
				i.wrong("%v is gone, and nobody was told", object(before))
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

// compare looks whether what a handler was told is what the cache shows.
func (i *informed) compare(name string, state map[keepwatch.Key]*unstructured.Unstructured) {
	list := i.shared.GetStore().List()
	if len(list) != len(state) {
		i.wrong("the cache has %d objects, %s was told of %d", len(list), name, len(state))
	}
	for _, value := range list {
		u := value.(*unstructured.Unstructured)
		if held := state[object(u).key]; held != u {
			i.wrong("the cache shows %v, %s was told of %v", object(u), name, held)
		}
	}
}

// show writes down what the cache shows, by its list and by its index.
func (i *informed) show(at keepwatch.Revision) {
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
		i.wrong("the index finds %d of %d red objects: %v", len(red), reds, err)
	}
	i.judged.record(shown)
}
