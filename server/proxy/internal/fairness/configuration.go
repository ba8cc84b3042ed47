package fairness

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	applyflowcontrolv1 "k8s.io/client-go/applyconfigurations/flowcontrol/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	flowcontrolclient "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
	"k8s.io/client-go/tools/cache"
)

// A server that refuses its configuration is not asked for it again for refusedFirst, and for twice as long each time
// up to refusedFor: one that starts refuses it to everybody for a moment.
const refusedFirst, refusedFor = time.Second, time.Minute

// newConfiguration returns the informers of the server's configuration. While the server refuses a part of it, they
// have all of the one that kube-apiserver creates at its first start: the server's FlowSchemas name levels that the
// default ones lack, and all their requests would share the few seats of the level catch-all.
func newConfiguration(client kubernetes.Interface) informers.SharedInformerFactory {
	return newConfigurationAskedAgain(client, refusedFirst)
}

func newConfigurationAskedAgain(client kubernetes.Interface, first time.Duration) informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactory(client, 0)
	schemas, levels := client.FlowcontrolV1().FlowSchemas(), client.FlowcontrolV1().PriorityLevelConfigurations()
	listSchemas := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return schemas.List(ctx, o) }
	listLevels := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return levels.List(ctx, o) }
	shown := &shown{now: make(chan struct{})}
	// the factory's own functions find these informers by the type of their objects
	follow(factory, &flowcontrolv1.FlowSchema{}, &configured{shown: shown, again: first,
		list: listSchemas, other: listLevels, watch: schemas.Watch, defaults: defaultSchemas()})
	follow(factory, &flowcontrolv1.PriorityLevelConfiguration{}, &configured{shown: shown, again: first,
		list: listLevels, other: listSchemas, watch: levels.Watch, defaults: defaultLevels()})
	return factory
}

func follow(factory informers.SharedInformerFactory, object runtime.Object, from *configured) {
	factory.InformerFor(object, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(from, object, 0, cache.Indexers{})
	})
}

func defaultSchemas() runtime.Object {
	list := &flowcontrolv1.FlowSchemaList{ListMeta: metav1.ListMeta{ResourceVersion: defaultRevision}}
	for _, all := range [][]*flowcontrolv1.FlowSchema{bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas} {
		for _, s := range all {
			item := *s
			item.UID = types.UID(s.Name) // the headers of responses have it
			list.Items = append(list.Items, item)
		}
	}
	return list
}

func defaultLevels() runtime.Object {
	list := &flowcontrolv1.PriorityLevelConfigurationList{ListMeta: metav1.ListMeta{ResourceVersion: defaultRevision}}
	for _, all := range [][]*flowcontrolv1.PriorityLevelConfiguration{
		bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations,
	} {
		for _, l := range all {
			item := *l
			item.UID = types.UID(l.Name)
			list.Items = append(list.Items, item)
		}
	}
	return list
}

// defaultRevision is the resource version of the default objects: a list from it on has any state.
const defaultRevision = "0"

// shown is whether the server has shown the objects of both kinds. From then on the default ones are not used.
type shown struct {
	once sync.Once
	now  chan struct{} // closed then
}

func (s *shown) set() { s.once.Do(func() { close(s.now) }) }

func (s *shown) is() bool {
	select {
	case <-s.now:
		return true
	default:
		return false
	}
}

// configured lists and watches objects of one kind of the server, or the default ones if it refuses them, or those of
// the other kind. One reflector uses it.
type configured struct {
	shown       *shown // of both
	list, other func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch       func(context.Context, metav1.ListOptions) (watch.Interface, error)
	defaults    runtime.Object
	again       time.Duration // the wait after the next refusal
	refused     atomic.Bool   // the last list had the default objects
}

// IsWatchListSemanticsUnSupported makes client-go list.
func (*configured) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListWatcher.
func (c *configured) List(o metav1.ListOptions) (runtime.Object, error) {
	return c.ListWithContext(context.Background(), o)
}

// Watch implements cache.ListWatcher.
func (c *configured) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return c.WatchWithContext(context.Background(), o)
}

// ListWithContext lists the server's objects, or the default ones if the server has never shown them: one that starts
// refuses everybody for a moment.
func (c *configured) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	all, err := c.list(ctx, o)
	if err == nil && !c.shown.is() {
		if _, err = c.other(ctx, metav1.ListOptions{Limit: 1}); err == nil {
			c.shown.set()
		}
	}
	refused := !c.shown.is() && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err))
	c.refused.Store(refused)
	switch {
	case refused:
		return c.defaults.DeepCopyObject(), nil
	case err != nil:
		return nil, err
	}
	return all, nil
}

// WatchWithContext watches the server's objects. If the default ones were listed, it ends when the server shall be
// asked again: at the latest when it has shown both kinds.
func (c *configured) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if !c.refused.Load() {
		return c.watch(ctx, o)
	}
	w := &pause{events: make(chan watch.Event, 1), stopped: make(chan struct{})}
	wait := c.again
	c.again = min(2*wait, refusedFor)
	w.waiting.Go(func() {
		again := time.NewTimer(wait)
		defer again.Stop()
		select {
		case <-again.C:
		case <-c.shown.now:
		case <-w.stopped:
			return
		}
		expired := apierrors.NewResourceExpired("the server is asked again")
		w.events <- watch.Event{Type: watch.Error, Object: &expired.ErrStatus}
	})
	return w, nil
}

// pause is a watch whose only event is an error, after some time.
type pause struct {
	events  chan watch.Event // never closed: the reflector has stopped it
	stopped chan struct{}
	once    sync.Once
	waiting sync.WaitGroup
}

// Stop implements watch.Interface.
func (p *pause) Stop() {
	p.once.Do(func() { close(p.stopped) })
	p.waiting.Wait()
}

// ResultChan implements watch.Interface.
func (p *pause) ResultChan() <-chan watch.Event { return p.events }

// readOnly is a client that does not report the state of FlowSchemas: that is for API servers to do.
type readOnly struct {
	flowcontrolclient.FlowcontrolV1Interface
}

// FlowSchemas implements flowcontrolclient.FlowcontrolV1Interface.
func (r readOnly) FlowSchemas() flowcontrolclient.FlowSchemaInterface {
	return readOnlySchemas{r.FlowcontrolV1Interface.FlowSchemas()}
}

type readOnlySchemas struct {
	flowcontrolclient.FlowSchemaInterface
}

// ApplyStatus does nothing.
func (readOnlySchemas) ApplyStatus(context.Context, *applyflowcontrolv1.FlowSchemaApplyConfiguration,
	metav1.ApplyOptions) (*flowcontrolv1.FlowSchema, error) {
	return &flowcontrolv1.FlowSchema{}, nil
}
