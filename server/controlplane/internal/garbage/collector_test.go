package garbage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	fakediscovery "k8s.io/client-go/discovery/fake"
	fakemetadata "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	nodes      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	crds       = definitions.WithVersion("v1")
	kinds      = map[schema.GroupVersionResource]string{configMaps: "ConfigMap", secrets: "Secret", nodes: "Node",
		crds: "CustomResourceDefinition"}
)

// The library's handler would wait for the time of the process, which a bubble's never reaches.
func init() { utilruntime.ErrorHandlers = nil }

// cluster is a collector, and a server of config maps and secrets. Its time is that of a synctest bubble.
type cluster struct {
	*testing.T
	collector *Collector
	server    *fakemetadata.FakeMetadataClient
	discovery *fakediscovery.FakeDiscovery
	complete  chan struct{}
	revision  keepwatch.Revision // the newest one
}

func newCluster(t *testing.T, objects ...runtime.Object) *cluster {
	scheme := fakemetadata.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := &cluster{
		T: t, server: fakemetadata.NewSimpleMetadataClient(scheme, objects...), complete: make(chan struct{}),
		discovery: &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}},
	}
	c.discovery.Resources = served()
	c.collector = New(c.discovery, c.server)
	return c
}

// served is what discovery returns.
func served() []*metav1.APIResourceList {
	of := &metav1.APIResourceList{GroupVersion: "v1"}
	for resource, kind := range kinds {
		if resource.GroupVersion().String() == of.GroupVersion {
			of.APIResources = append(of.APIResources, metav1.APIResource{Name: resource.Resource, Kind: kind,
				Namespaced: resource != nodes, Version: "v1"})
		}
	}
	return []*metav1.APIResourceList{of}
}

// run runs the collector until the end of the test.
func (c *cluster) run() {
	ctx, cancel := context.WithCancel(c.Context())
	var running sync.WaitGroup
	running.Go(func() { c.collector.Run(ctx, c.complete) })
	c.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// stored is the objects of a resource in the server's memory.
type stored struct {
	*cluster
	resource schema.GroupVersionResource
	store    *store.Store
	ready    chan struct{}
	damaged  string       // the name of an object that cannot be read
	newest   func() error // called by WaitForNewest; nil for none
}

// state is one state of an object.
type state struct {
	*metav1.PartialObjectMetadata
	revision keepwatch.Revision
}

func (s *state) Key() keepwatch.Key           { return keepwatch.Key{Namespace: s.Namespace, Name: s.Name} }
func (s *state) UID() keepwatch.UID           { return keepwatch.UID(s.PartialObjectMetadata.UID) }
func (s *state) Revision() keepwatch.Revision { return s.revision }

func (s *stored) Ready() <-chan struct{} { return s.ready }
func (s *stored) WaitForNewest(context.Context) (keepwatch.Revision, error) {
	if s.newest == nil {
		return s.store.Revision(), nil
	}
	return s.store.Revision(), s.newest()
}
func (s *stored) Changes(from store.Cursor) *store.Watcher {
	return s.store.Watch(from, store.Filter{})
}

func (s *stored) Metadata(o keepwatch.Object) (*metav1.ObjectMeta, error) {
	if o.Key().Name == s.damaged {
		return nil, errors.New("damaged")
	}
	return &o.(*state).ObjectMeta, nil
}

// add adds a source of a resource, which is not ready before list.
func (c *cluster) add(resource schema.GroupVersionResource) (_ *stored, remove func()) {
	s := &stored{cluster: c, resource: resource, store: store.New(store.Options{}), ready: make(chan struct{})}
	return s, c.collector.Follow(resource.GroupResource(), s)
}

// follow adds a source that is ready.
func (c *cluster) follow(resource schema.GroupVersionResource) (_ *stored, remove func()) {
	s, remove := c.add(resource)
	s.list()
	return s, remove
}

// list reads the server's objects.
func (s *stored) list() {
	s.Helper()
	all, err := s.server.Resource(s.resource).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	s.revision++
	list, err := s.store.Replace(s.Context(), keepwatch.Relist{To: s.revision})
	for i := range all.Items {
		if err == nil {
			err = list.Put(s.Context(), []keepwatch.Object{&state{&all.Items[i], s.revision}})
		}
	}
	if err == nil {
		err = list.Commit(s.Context(), s.revision)
	}
	if err != nil {
		s.Fatal(err)
	}
	close(s.ready)
}

// change applies changes of objects at one revision each.
func (s *stored) change(kind keepwatch.ChangeType, objects ...*metav1.PartialObjectMetadata) {
	s.Helper()
	for _, o := range objects {
		from := s.store.Revision()
		s.revision++
		batch := keepwatch.Batch{From: from, To: s.revision, Changes: []keepwatch.Change{{Type: kind, Revision: s.revision,
			Object: &state{o, s.revision}}}}
		if _, err := s.store.Apply(s.Context(), batch); err != nil {
			s.Fatal(err)
		}
	}
}

// is requires that the server has objects of a resource, each with its owners and its finalizers.
func (c *cluster) is(resource schema.GroupVersionResource, want string) {
	c.Helper()
	list, err := c.server.Resource(resource).List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	var found []string
	for _, o := range list.Items {
		text := o.Name
		for _, owner := range o.OwnerReferences {
			text += "<" + owner.Name
		}
		for _, finalizer := range o.Finalizers {
			text += "+" + finalizer
		}
		found = append(found, text)
	}
	slices.Sort(found)
	if got := strings.Join(found, " "); got != want {
		c.Errorf("the %s are %q; want %q", resource.Resource, got, want)
	}
}

// object returns one of a resource, whose UID is made of its name.
func object(resource schema.GroupVersionResource, name string,
	owners ...*metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: resource.GroupVersion().String(), Kind: kinds[resource]},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
	}
	for _, owner := range owners {
		blocks := true
		o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{
			APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: &blocks,
		})
	}
	return o
}

// deleting makes an object one that is deleted with a finalizer.
func deleting(o *metav1.PartialObjectMetadata, finalizer string) *metav1.PartialObjectMetadata {
	o.DeletionTimestamp, o.Finalizers = &metav1.Time{Time: time.Now()}, []string{finalizer}
	return o
}

// The dependents of an owner that is deleted with Orphan may be listed last.
func TestNothingIsCollectedBeforeAllObjectsAreKnown(t *testing.T) {
	for _, last := range []string{"a list", "a source"} {
		t.Run(last, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				owner := deleting(object(secrets, "a"), metav1.FinalizerOrphanDependents)
				c := newCluster(t, owner, object(configMaps, "b", owner))
				c.follow(secrets)
				var dependents *stored
				if last == "a list" {
					dependents, _ = c.add(configMaps)
					close(c.complete)
				}
				c.run()
				time.Sleep(syncTimeout / 2)
				c.is(secrets, "a+orphan")
				if last == "a source" {
					c.follow(configMaps)
					close(c.complete)
				} else {
					dependents.list()
				}
				time.Sleep(syncTimeout / 4)
				c.is(configMaps, "b")
				c.is(secrets, "a")
			})
		})
	}
}

// A start with many owned objects requests none of them.
func TestKnownOwnersCostNoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := object(secrets, "a")
		middle := object(configMaps, "b", owner)
		c := newCluster(t, owner, middle, object(secrets, "c", middle))
		c.follow(configMaps)
		c.follow(secrets)
		close(c.complete)
		c.run()
		time.Sleep(time.Second)
		for _, action := range c.server.Actions() {
			if action.GetVerb() != "list" { // the test's
				t.Errorf("a request: %s %s", action.GetVerb(), action.GetResource().Resource)
			}
		}
		c.is(secrets, "a c<b")
	})
}

// An object that was deleted and created again while no watch was open is an owner that is gone.
func TestOwnersThatWereReplacedAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := object(secrets, "a")
		c := newCluster(t, owner, object(configMaps, "b", owner))
		changes, _ := c.follow(secrets)
		c.follow(configMaps)
		close(c.complete)
		c.run()
		time.Sleep(time.Second)
		again := object(secrets, "a")
		again.UID = "another"
		changes.change(keepwatch.Deleted, owner)
		changes.change(keepwatch.Added, again)
		time.Sleep(time.Second)
		c.is(configMaps, "")
	})
}

// An owner waits for an object whose source is replaced, as that of a custom resource is when its definition changes.
func TestObjectsStayKnownWhenTheirSourceIsReplaced(t *testing.T) {
	for _, end := range []string{"deleted before the list", "deleted after the list", "definition deleted"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				owner := deleting(object(secrets, "a"), metav1.FinalizerDeleteDependents)
				blocker := deleting(object(configMaps, "b", owner), "example.com/hold")
				definition := object(crds, "configmaps")
				c := newCluster(t, owner, blocker, definition)
				c.follow(secrets)
				changes, _ := c.follow(crds)
				_, remove := c.follow(configMaps)
				close(c.complete)
				c.run()
				time.Sleep(time.Second)
				c.is(secrets, "a+foregroundDeletion")

				remove()
				time.Sleep(time.Second)
				c.is(secrets, "a+foregroundDeletion")
				if end == "definition deleted" {
					changes.change(keepwatch.Deleted, definition)
					time.Sleep(time.Second)
					c.is(secrets, "a")
					return
				}
				changes, _ = c.add(configMaps)
				time.Sleep(time.Second)
				c.is(secrets, "a+foregroundDeletion")
				if end == "deleted before the list" {
					if err := c.server.Tracker().Delete(configMaps, "default", "b"); err != nil {
						t.Fatal(err)
					}
				}
				changes.list()
				time.Sleep(time.Second)
				if end == "deleted after the list" {
					c.is(secrets, "a+foregroundDeletion")
					changes.change(keepwatch.Deleted, blocker)
					time.Sleep(time.Second)
				}
				c.is(secrets, "a")
			})
		})
	}
}

// The objects of a definition that is deleted are deleted before it. Their storage may not know that when it closes.
func TestLastDeletionsOfADefinition(t *testing.T) {
	for _, kind := range []string{"ConfigMap", "ConfigMaps", "Settings"} { // the resource does not follow from it
		t.Run(kind, func(t *testing.T) { testLastDeletions(t, kind) })
	}
}

func testLastDeletions(t *testing.T, kind string) {
	synctest.Test(t, func(t *testing.T) {
		owner, definition := object(configMaps, "a"), object(crds, "configmaps")
		dependent := object(secrets, "b", owner)
		dependent.OwnerReferences[0].Kind = kind
		c := newCluster(t, owner, dependent, definition)
		c.follow(secrets)
		changes, _ := c.follow(crds)
		owners, remove := c.follow(configMaps)
		version, removeVersion := c.follow(configMaps) // another one's storage may be the last that is closed
		close(c.complete)
		c.run()
		time.Sleep(time.Second)
		waits, ofVersion := 0, 0
		version.newest = func() error {
			ofVersion++
			version.change(keepwatch.Deleted, owner)
			return nil
		}
		owners.newest = func() error {
			if waits++; waits == 1 {
				return apierrors.NewTimeoutError("Too large resource version", 1)
			}
			owners.change(keepwatch.Deleted, owner)
			return nil
		}
		synctest.Wait()
		c.discovery.Resources = []*metav1.APIResourceList{{GroupVersion: "example.com/v1", // the kind is not served
			APIResources: []metav1.APIResource{{Name: "others", Kind: "Other"}}}}
		changes.change(keepwatch.Deleted, definition)
		remove()
		removeVersion()
		time.Sleep(2 * maxDelay)
		c.is(secrets, "")
		if waits != 2 || ofVersion != 1 {
			t.Errorf("waited %d and %d times", waits, ofVersion)
		}
	})
}

// A dependent of another resource that was created just before an owner's deletion may be known last. The owner waits
// for it all the same, and one wait is for all owners.
func TestDependentsThatAreKnownLast(t *testing.T) {
	for finalizer, want := range map[string]struct{ secrets, configMaps string }{
		metav1.FinalizerDeleteDependents: {"a+foregroundDeletion c", ""}, metav1.FinalizerOrphanDependents: {"a c", "b"},
	} {
		t.Run(finalizer, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				owner := deleting(object(secrets, "a"), finalizer)
				c := newCluster(t, owner, deleting(object(secrets, "c"), finalizer))
				c.follow(secrets)
				c.add(nodes) // what cannot be read keeps nobody waiting for ever
				dependents, _ := c.follow(configMaps)
				dependent := object(configMaps, "b", owner)
				if err := c.server.Tracker().Add(dependent); err != nil {
					t.Fatal(err)
				}
				waits := 0
				dependents.newest = func() error {
					if waits++; waits == 1 {
						return apierrors.NewTimeoutError("Too large resource version", 1)
					}
					dependents.change(keepwatch.Added, dependent)
					return nil
				}
				close(c.complete)
				c.run()
				time.Sleep(syncTimeout + time.Second)
				c.is(secrets, want.secrets)
				c.is(configMaps, want.configMaps)
				if waits != 2 {
					t.Errorf("waited %d times", waits)
				}
			})
		})
	}
}

// A cache that stays behind delays owners that wait for their dependents, and nothing else. The wait for all of them is
// one, and it is repeated until the cache is not behind.
func TestACacheThatStaysBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []runtime.Object
		var waiting, ended []string
		for i := range 20 {
			name := fmt.Sprintf("a%02d", i)
			finalizer := []string{metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents}[i%2]
			all = append(all, deleting(object(secrets, name), finalizer))
			waiting, ended = append(waiting, name+"+"+finalizer), append(ended, name)
		}
		owner := object(secrets, "b")
		c := newCluster(t, append(all, owner, object(configMaps, "c", owner))...)
		changes, _ := c.follow(secrets)
		dependents, _ := c.follow(configMaps)
		var waits atomic.Int32
		var caughtUp atomic.Bool
		dependents.newest = func() error {
			if waits.Add(1) > 1 {
				t.Error("two waits at a time")
			}
			defer waits.Add(-1)
			if caughtUp.Load() {
				return nil
			}
			time.Sleep(3 * time.Second)
			return apierrors.NewTimeoutError("Too large resource version", 1)
		}
		close(c.complete)
		c.run()
		time.Sleep(time.Minute + time.Second)
		if err := c.server.Tracker().Delete(secrets, "default", "b"); err != nil {
			t.Fatal(err)
		}
		changes.change(keepwatch.Deleted, owner)
		synctest.Wait()
		c.is(configMaps, "")
		c.is(secrets, strings.Join(waiting, " "))

		last := deleting(object(secrets, "last"), metav1.FinalizerDeleteDependents)
		if err := c.server.Tracker().Add(last); err != nil {
			t.Fatal(err)
		}
		changes.change(keepwatch.Added, last)
		if err := c.server.Tracker().Delete(secrets, "default", "a00"); err != nil {
			t.Fatal(err)
		}
		changes.change(keepwatch.Deleted, all[0].(*metav1.PartialObjectMetadata))
		time.Sleep(time.Minute)
		c.is(secrets, strings.Join(append(waiting[1:], "last+"+metav1.FinalizerDeleteDependents), " "))

		caughtUp.Store(true)
		time.Sleep(maxDelay + 3*time.Second)
		c.is(secrets, strings.Join(append(ended[1:], "last"), " "))
		c.collector.mu.Lock()
		defer c.collector.mu.Unlock()
		if n := len(c.collector.aside); n > 0 {
			t.Errorf("%d owners are still put aside", n)
		}
	})
}

// An owner that is written all the time while it is being deleted is done after the first wait that began after its
// deletion.
func TestOwnersThatChangeDuringTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := deleting(object(secrets, "a"), metav1.FinalizerDeleteDependents)
		c := newCluster(t, owner)
		changes, _ := c.follow(secrets)
		dependents, _ := c.follow(configMaps)
		dependents.newest = func() error {
			changes.change(keepwatch.Modified, owner)
			time.Sleep(time.Second)
			return nil
		}
		close(c.complete)
		c.run()
		time.Sleep(time.Minute)
		c.is(secrets, "a")
	})
}

// The metadata of one object cannot be read: it is neither collected nor an obstacle.
func TestDamagedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		missing := object(secrets, "missing")
		c := newCluster(t, object(secrets, "a", missing), object(secrets, "b", missing))
		objects, _ := c.add(secrets)
		objects.damaged = "a"
		objects.list()
		close(c.complete)
		c.run()
		time.Sleep(time.Second)
		c.is(secrets, "a<missing")
	})
}

// A definition that changes has new storages. The next one may lag behind the one that the graph is from.
func TestObjectsOfALaggingSourceStayKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := deleting(object(secrets, "a"), metav1.FinalizerDeleteDependents)
		blocker := deleting(object(configMaps, "b", owner), "example.com/hold")
		c := newCluster(t, owner)
		c.follow(secrets)
		first, remove := c.follow(configMaps)
		second, _ := c.follow(configMaps)
		first.change(keepwatch.Added, blocker)
		close(c.complete)
		c.run()
		time.Sleep(time.Second)
		c.is(secrets, "a+foregroundDeletion")
		remove()
		time.Sleep(time.Second)
		c.is(secrets, "a+foregroundDeletion")
		second.change(keepwatch.Added, blocker)
		second.change(keepwatch.Deleted, blocker)
		time.Sleep(time.Second)
		c.is(secrets, "a")
	})
}

// A list that fails permanently delays the collection of other objects, and does not stop it.
func TestCollectionBeginsWithoutAListThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		missing := object(secrets, "missing")
		c := newCluster(t, object(secrets, "b", missing))
		c.follow(secrets)
		c.add(configMaps)
		close(c.complete)
		c.run()
		time.Sleep(syncTimeout - time.Second)
		c.is(secrets, "b<missing")
		time.Sleep(2 * time.Second)
		c.is(secrets, "")
	})
}

// The server has owners that the collector does not follow: nothing reports their deletion.
func TestOwnersThatAreNotFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := object(secrets, "a")
		c := newCluster(t, owner, object(configMaps, "b", owner))
		c.follow(configMaps)
		close(c.complete)
		c.run()
		time.Sleep(time.Second)
		c.is(configMaps, "b<a")
		if err := c.server.Resource(secrets).Namespace("default").Delete(t.Context(), "a",
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * maxDelay)
		c.is(configMaps, "")
	})
}

// An owner that was deleted is gone only for objects whose references are to it.
func TestDeletedOwnersOfOtherReferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := object(secrets, "a")
		clusterScoped := object(configMaps, "b", owner)
		clusterScoped.Namespace = ""
		unknown := object(configMaps, "c", owner)
		unknown.OwnerReferences[0].Kind = "Typo"
		c := newCluster(t, owner, clusterScoped, unknown, object(configMaps, "d", owner))
		changes, _ := c.follow(secrets)
		c.follow(configMaps)
		close(c.complete)
		c.run()
		time.Sleep(time.Second)
		if err := c.server.Resource(secrets).Namespace("default").Delete(t.Context(), "a",
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		changes.change(keepwatch.Deleted, owner)
		time.Sleep(time.Second)
		c.is(configMaps, "b<a c<a")
	})
}

// An object of the cluster with an owner of a namespaced kind is left alone, also if another owner is gone.
func TestNamespacedOwnersOfClusterObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, owner := object(nodes, "gone"), object(secrets, "a")
		gone.Namespace = ""
		ofBoth, ofOne := object(nodes, "n", gone, owner), object(nodes, "m", gone)
		ofBoth.Namespace, ofOne.Namespace = "", ""
		c := newCluster(t, ofBoth, ofOne)
		c.follow(nodes)
		c.follow(secrets)
		close(c.complete)
		c.run()
		time.Sleep(2 * maxDelay)
		c.is(nodes, "n<gone<a")
	})
}

// A change of the only dependent does not let the collector forget that its owner was deleted.
func TestDependentsChangeAfterTheirOwnersDeletion(t *testing.T) {
	g := newGraph()
	owner := &node{uid: "a"}
	dependent := &node{uid: "b", owners: []metav1.OwnerReference{{UID: "a"}}}
	g.put(owner)
	g.put(dependent)
	g.markDeleted("a")
	g.remove("a")
	g.put(&node{uid: "b", owners: dependent.owners})
	if g.lastOf("a") != owner || len(g.dependentsOf("a")) != 1 {
		t.Error("forgotten")
	}
	g.put(&node{uid: "b"})
	if g.lastOf("a") != nil || len(g.dependentsOf("a")) != 0 {
		t.Error("kept without dependents")
	}
}

// One of several references to an owner may block its deletion.
func TestAnyReferenceBlocks(t *testing.T) {
	yes := true
	n := &node{owners: []metav1.OwnerReference{{UID: "a"}, {UID: "a", BlockOwnerDeletion: &yes}, {UID: "b"}}}
	if !n.blocks("a") || n.blocks("b") {
		t.Errorf("blocks a: %v, b: %v", n.blocks("a"), n.blocks("b"))
	}
}
