package simulation

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// Cluster simulates the workloads of one server.
type Cluster struct {
	client  kubernetes.Interface
	clock   *Clock
	factory informers.SharedInformerFactory

	pods, nodes, leases, replicaSets, deployments, statefulSets, daemonSets, revisions, jobs, claims *followed

	podsOf         corelisters.PodLister
	nodesOf        corelisters.NodeLister
	leasesOf       coordinationlisters.LeaseLister
	claimsOf       corelisters.PersistentVolumeClaimLister
	deploymentsOf  appslisters.DeploymentLister
	replicaSetsOf  appslisters.ReplicaSetLister
	statefulSetsOf appslisters.StatefulSetLister
	daemonSetsOf   appslisters.DaemonSetLister
	revisionsOf    appslisters.ControllerRevisionLister
	jobsOf         batchlisters.JobLister

	loops     []*loop
	scheduled uint64 // pods that were assigned; only the loop of unscheduled pods uses it
	addresses addresses
}

// followed is the cache of one kind.
type followed struct {
	cache.SharedIndexInformer

	mu      sync.Mutex
	seen    uint64        // the newest resourceVersion of an object in the cache
	changed chan struct{} // closed by the next change of the cache; nil if nobody waits
}

// New returns a Cluster that writes by a client of the server.
func New(client kubernetes.Interface, clock *Clock) (*Cluster, error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	core, apps := factory.Core().V1(), factory.Apps().V1()
	c := &Cluster{
		client: client, clock: clock, factory: factory,
		podsOf: core.Pods().Lister(), nodesOf: core.Nodes().Lister(), claimsOf: core.PersistentVolumeClaims().Lister(),
		leasesOf:      factory.Coordination().V1().Leases().Lister(),
		deploymentsOf: apps.Deployments().Lister(), replicaSetsOf: apps.ReplicaSets().Lister(),
		statefulSetsOf: apps.StatefulSets().Lister(), daemonSetsOf: apps.DaemonSets().Lister(),
		revisionsOf: apps.ControllerRevisions().Lister(), jobsOf: factory.Batch().V1().Jobs().Lister(),
	}
	c.pods = &followed{SharedIndexInformer: core.Pods().Informer()}
	c.nodes = &followed{SharedIndexInformer: core.Nodes().Informer()}
	c.claims = &followed{SharedIndexInformer: core.PersistentVolumeClaims().Informer()}
	c.leases = &followed{SharedIndexInformer: factory.Coordination().V1().Leases().Informer()}
	c.deployments = &followed{SharedIndexInformer: apps.Deployments().Informer()}
	c.replicaSets = &followed{SharedIndexInformer: apps.ReplicaSets().Informer()}
	c.statefulSets = &followed{SharedIndexInformer: apps.StatefulSets().Informer()}
	c.daemonSets = &followed{SharedIndexInformer: apps.DaemonSets().Informer()}
	c.revisions = &followed{SharedIndexInformer: apps.ControllerRevisions().Informer()}
	c.jobs = &followed{SharedIndexInformer: factory.Batch().V1().Jobs().Informer()}
	return c, errors.Join(
		c.pods.AddIndexers(cache.Indexers{byController: controllerOf, byNode: nodeOf}),
		c.replicaSets.AddIndexers(cache.Indexers{byController: controllerOf}),
		c.revisions.AddIndexers(cache.Indexers{byController: controllerOf}),
		c.addLoops(),
	)
}

// addLoops makes the loops, and says which changes they handle.
func (c *Cluster) addLoops() error {
	add := func(kind string, handle handler) *loop {
		l := newLoop(kind, c.clock, handle)
		c.loops = append(c.loops, l)
		return l
	}
	scheduler, kubelet := add("unscheduled Pod", c.schedule), add("Pod", c.live)
	nodes, claims := add("Node", c.register), add("PersistentVolumeClaim", c.bind)
	owners := map[string]*loop{
		deploymentKind.Kind: add(deploymentKind.Kind, c.deploy), replicaSetKind.Kind: add(replicaSetKind.Kind, c.replicate),
		statefulSetKind.Kind: add(statefulSetKind.Kind, c.order), daemonSetKind.Kind: add(daemonSetKind.Kind, c.cover),
		jobKind.Kind: add(jobKind.Kind, c.work),
	}
	own := func(l *loop) func(metav1.Object) {
		return func(o metav1.Object) { l.add(o.GetNamespace(), o.GetName()) }
	}
	controller := func(o metav1.Object) bool {
		owner := metav1.GetControllerOf(o)
		if owner == nil {
			return false
		}
		if l := owners[owner.Kind]; l != nil {
			l.add(o.GetNamespace(), owner.Name)
		}
		return true
	}
	return errors.Join(
		c.pods.onChange(func(o metav1.Object) {
			if o.(*corev1.Pod).Spec.NodeName == "" {
				own(scheduler)(o)
			} else {
				own(kubelet)(o)
			}
			if !controller(o) && o.GetDeletionTimestamp() == nil {
				c.addSelecting(o, owners)
			}
		}),
		c.nodes.onChange(func(o metav1.Object) {
			own(nodes)(o)
			for _, pod := range c.indexed(c.pods, byNode, "") { // may fit now
				own(scheduler)(pod)
			}
			for _, pod := range c.indexed(c.pods, byNode, o.GetName()) {
				own(kubelet)(pod)
			}
			for _, set := range c.daemonSets.GetStore().List() {
				own(owners[daemonSetKind.Kind])(set.(metav1.Object))
			}
		}),
		c.leases.onChange(func(o metav1.Object) {
			if o.GetNamespace() == corev1.NamespaceNodeLease {
				nodes.add("", o.GetName())
			}
		}),
		c.claims.onChange(own(claims)),
		c.deployments.onChange(own(owners[deploymentKind.Kind])),
		c.replicaSets.onChange(func(o metav1.Object) {
			own(owners[replicaSetKind.Kind])(o)
			if !controller(o) {
				for _, d := range listed[*appsv1.Deployment](c.deployments, o.GetNamespace()) {
					if selects(d.Spec.Selector, o) {
						own(owners[deploymentKind.Kind])(d)
					}
				}
			}
		}),
		c.statefulSets.onChange(own(owners[statefulSetKind.Kind])),
		c.daemonSets.onChange(own(owners[daemonSetKind.Kind])),
		c.revisions.onChange(func(o metav1.Object) { controller(o) }),
		c.jobs.onChange(own(owners[jobKind.Kind])),
	)
}

// addSelecting adds the owners that may adopt a pod.
func (c *Cluster) addSelecting(pod metav1.Object, owners map[string]*loop) {
	for _, set := range listed[*appsv1.ReplicaSet](c.replicaSets, pod.GetNamespace()) {
		if selects(set.Spec.Selector, pod) {
			owners[replicaSetKind.Kind].add(set.Namespace, set.Name)
		}
	}
	for _, set := range listed[*appsv1.StatefulSet](c.statefulSets, pod.GetNamespace()) {
		if selects(set.Spec.Selector, pod) {
			owners[statefulSetKind.Kind].add(set.Namespace, set.Name)
		}
	}
	for _, set := range listed[*appsv1.DaemonSet](c.daemonSets, pod.GetNamespace()) {
		if selects(set.Spec.Selector, pod) {
			owners[daemonSetKind.Kind].add(set.Namespace, set.Name)
		}
	}
}

// onChange calls a function with each object that was added, changed or deleted, when the cache has the change.
func (f *followed) onChange(changed func(metav1.Object)) error {
	see := func(obj any) {
		if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = unknown.Obj
		}
		if o, ok := obj.(metav1.Object); ok {
			f.see(revision(o.GetResourceVersion()))
			changed(o)
		}
	}
	_, err := f.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see,
		UpdateFunc: func(before, obj any) {
			o, n := before.(metav1.Object), obj.(metav1.Object)
			if o.GetUID() != n.GetUID() || !slices.EqualFunc(o.GetOwnerReferences(), n.GetOwnerReferences(), sameOwner) {
				see(before) // its owners lose it
			}
			see(obj)
		},
		DeleteFunc: see,
	})
	return err
}

func sameOwner(a, b metav1.OwnerReference) bool { return a.UID == b.UID }

// revision returns a resourceVersion as a number; those of this server are.
func revision(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}

// seeTimeout bounds the wait for a write to be in a cache. An object that was deleted while a watch was interrupted is
// never there.
const seeTimeout = 2 * time.Second

// see wakes those who wait for a change of the cache.
func (f *followed) see(version uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = max(f.seen, version)
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// await waits until the cache has a written object.
func (f *followed) await(ctx context.Context, written metav1.Object) {
	version := revision(written.GetResourceVersion())
	f.until(ctx, func(seen uint64) bool { return seen >= version })
}

// awaitDeletion waits until the cache knows that an object was deleted.
func (f *followed) awaitDeletion(ctx context.Context, deleted metav1.Object) {
	f.until(ctx, func(uint64) bool {
		obj, exists, err := f.GetStore().GetByKey(cache.MetaObjectToName(deleted).String())
		if err != nil || !exists {
			return true
		}
		o := obj.(metav1.Object)
		return o.GetUID() != deleted.GetUID() || o.GetDeletionTimestamp() != nil
	})
}

// until waits until done returns true of the cache and the newest resourceVersion in it, for seeTimeout at most.
func (f *followed) until(ctx context.Context, done func(seen uint64) bool) {
	ctx, cancel := context.WithTimeout(ctx, seeTimeout)
	defer cancel()
	for {
		seen, changed := f.next() // before done: a change after it closes the channel
		if done(seen) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// next returns the newest resourceVersion in the cache, and a channel that the next change closes.
func (f *followed) next() (seen uint64, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.seen, f.changed
}

// Run simulates until ctx is done.
func (c *Cluster) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer c.factory.Shutdown()
	defer running.Wait()
	c.factory.StartWithContext(ctx)
	c.factory.WaitForCacheSync(ctx.Done()) // incomplete only when ctx is done; then the loops handle nothing, and end
	c.addresses.use(c.pods.GetStore().List())
	for _, l := range c.loops {
		running.Go(func() { l.run(ctx) })
	}
}
