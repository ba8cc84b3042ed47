// Package garbage compares the garbage collectors of a test server and of kube-controller-manager with a model: random
// owners and dependents, and random deletions.
package garbage

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/testserver"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	stepsFlag = flag.Int("garbage.steps", 60, "how many times to add objects or to delete some")
	seedFlag  = flag.Uint64("garbage.seed", 1, "draw objects as a run did that printed this seed; 0 draws anew")
)

// settleTimeout bounds the wait for a collector.
const settleTimeout = 3 * time.Minute

func TestMain(m *testing.M) { peer.Main(m) }

// Both collectors leave what the model leaves.
func TestCollectors(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-garbage.seed %d", seed)
	real := peer.Kubernetes(t)
	peer.StartControllerManager(t, real, "garbage-collector-controller")
	for name, config := range map[string]*rest.Config{"kube-controller-manager": real.Config(),
		"testserver": testserver.New(t).Config()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t, config, rand.New(rand.NewPCG(seed, 5)))
			for s.number = range *stepsFlag {
				what := s.step()
				s.model.collect()
				s.settle(what)
			}
			t.Logf("%d objects were made, %d are left", s.serial, len(s.model))
			if s.serial < 2**stepsFlag || len(s.model) > s.serial*2/3 {
				t.Error("the story is not mixed enough")
			}
		})
	}
}

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	nodes      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	kinds      = map[schema.GroupVersionResource]string{configMaps: "ConfigMap", secrets: "Secret", nodes: "Node"}
)

// object is one in the model.
type object struct {
	resource        schema.GroupVersionResource
	namespace, name string
	uid             types.UID
	owners          []metav1.OwnerReference
}

// model is the objects that must be left, by their UID.
type model map[types.UID]*object

// has reports whether an owner counts for a dependent.
func (m model) has(reference metav1.OwnerReference, dependent *object) bool {
	owner := m[reference.UID]
	return owner != nil && owner.name == reference.Name && (owner.namespace == "" ||
		owner.namespace == dependent.namespace)
}

// collect removes objects whose owners are all gone, and references to those that are gone, until nothing changes.
func (m model) collect() {
	for changed := true; changed; {
		changed = false
		for uid, o := range m {
			left := slices.DeleteFunc(slices.Clone(o.owners), func(r metav1.OwnerReference) bool { return !m.has(r, o) })
			switch {
			case len(left) == len(o.owners):
			case len(left) == 0:
				delete(m, uid)
				changed = true
			default:
				o.owners, changed = left, true
			}
		}
	}
}

// state describes the model.
func (m model) state() []string {
	found := []string{}
	for _, o := range m {
		found = append(found, o.describe())
	}
	slices.Sort(found)
	return found
}

func (o *object) describe() string {
	owners := []string{}
	for _, r := range o.owners {
		owners = append(owners, r.Name)
	}
	slices.Sort(owners)
	return fmt.Sprintf("%s %s/%s of %s", o.resource.Resource, o.namespace, o.name, strings.Join(owners, ","))
}

// story is the objects of one server.
type story struct {
	*testing.T
	typed    kubernetes.Interface
	metadata metadata.Interface
	random   *rand.Rand
	model    model
	order    []types.UID // of creation
	serial   int
	number   int // of the step
}

var homes = []string{"one", "two"}

// labelled selects the objects of the story.
const labelled = "story=garbage"

func newStory(t *testing.T, config *rest.Config, random *rand.Rand) *story {
	s := &story{T: t, random: random, model: model{}}
	var err error
	if s.typed, err = kubernetes.NewForConfig(config); err == nil {
		s.metadata, err = metadata.NewForConfig(config)
	}
	s.must(err)
	for _, home := range homes {
		_, err := s.typed.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}, metav1.CreateOptions{})
		s.must(err)
	}
	return s
}

func (s *story) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// step adds objects, or deletes one to three. Nothing else is deleted while a deletion orphans: whether an object stays
// that loses all its owners, some by an orphaning deletion and some by another, depends on which reference is removed
// last.
func (s *story) step() string {
	s.Helper()
	if s.random.IntN(3) == 0 || len(s.model) < 15 {
		names := []string{}
		for range 4 + s.random.IntN(8) {
			names = append(names, s.add())
		}
		return "adding " + strings.Join(names, " ")
	}
	what := "deleting"
	for range 1 + s.random.IntN(3) {
		left := s.left()
		if len(left) == 0 {
			break
		}
		o := pick(s.random, left...)
		propagation := pick(s.random, metav1.DeletePropagationBackground, metav1.DeletePropagationForeground,
			metav1.DeletePropagationOrphan)
		if propagation == metav1.DeletePropagationOrphan {
			s.settle(what)
		}
		s.delete(o, propagation)
		what += fmt.Sprintf(" %s (%s)", o.describe(), propagation)
		if propagation == metav1.DeletePropagationOrphan {
			s.settle(what)
		}
	}
	return what
}

// left returns the objects of the model in the order of their creation.
func (s *story) left() []*object {
	var found []*object
	for _, uid := range s.order {
		if o := s.model[uid]; o != nil {
			found = append(found, o)
		}
	}
	return found
}

// add creates an object with up to three owners: some are in another namespace, have another name, or don't exist.
// Those of nodes are nodes, since a reference from a cluster-wide object into a namespace means nothing.
func (s *story) add() string {
	s.Helper()
	r := s.random
	s.serial++
	o := &object{resource: pick(r, configMaps, configMaps, secrets, nodes), namespace: pick(r, homes...),
		name: fmt.Sprintf("object-%d", s.serial)}
	if o.resource == nodes {
		o.namespace = ""
	}
	left := s.left()
	for range r.IntN(4) {
		if len(left) == 0 {
			break
		}
		owner := pick(r, left[max(0, len(left)-15):]...)
		twice := slices.ContainsFunc(o.owners, func(other metav1.OwnerReference) bool { return other.UID == owner.uid })
		if twice || o.resource == nodes && owner.resource != nodes {
			continue
		}
		blocks := r.IntN(2) == 0
		reference := metav1.OwnerReference{APIVersion: "v1", Kind: kinds[owner.resource], Name: owner.name, UID: owner.uid,
			BlockOwnerDeletion: &blocks}
		switch r.IntN(24) {
		case 0, 1:
			reference.UID = types.UID(fmt.Sprintf("no-uid-%d", s.serial))
		case 2:
			reference.Name = fmt.Sprintf("no-name-%d", s.serial)
		}
		o.owners = append(o.owners, reference)
	}
	s.create(o)
	s.model[o.uid] = o
	s.order = append(s.order, o.uid)
	return o.describe()
}

func (s *story) create(o *object) {
	s.Helper()
	of := metav1.ObjectMeta{Name: o.name, Labels: map[string]string{"story": "garbage"}, OwnerReferences: o.owners}
	var made metav1.Object
	var err error
	switch ctx := s.Context(); o.resource {
	case configMaps:
		made, err = s.typed.CoreV1().ConfigMaps(o.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: of},
			metav1.CreateOptions{})
	case secrets:
		made, err = s.typed.CoreV1().Secrets(o.namespace).Create(ctx, &corev1.Secret{ObjectMeta: of}, metav1.CreateOptions{})
	case nodes:
		made, err = s.typed.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: of}, metav1.CreateOptions{})
	}
	s.must(err)
	o.uid = made.GetUID()
}

// delete deletes an object.
func (s *story) delete(o *object, propagation metav1.DeletionPropagation) {
	s.Helper()
	err := s.metadata.Resource(o.resource).Namespace(o.namespace).Delete(s.Context(), o.name,
		metav1.DeleteOptions{PropagationPolicy: &propagation})
	s.must(err)
	delete(s.model, o.uid)
	if propagation == metav1.DeletePropagationOrphan {
		for _, dependent := range s.model {
			dependent.owners = slices.DeleteFunc(dependent.owners, func(r metav1.OwnerReference) bool { return r.UID == o.uid })
		}
	}
	s.model.collect() // another deletion of this step is of an object that stays
}

// settle waits until the server has what the model has.
func (s *story) settle(what string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), settleTimeout)
	defer cancel()
	want := s.model.state()
	for {
		diff := cmp.Diff(want, s.state(ctx))
		if diff == "" {
			return
		}
		select {
		case <-ctx.Done():
			s.Fatalf("step %d, %s (- model, + server):\n%s", s.number, what, diff)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// state describes the objects of the server. One that is being deleted is still there.
func (s *story) state(ctx context.Context) []string {
	found := []string{}
	for resource := range kinds {
		list, err := s.metadata.Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: labelled})
		if err != nil {
			return []string{err.Error()}
		}
		for _, item := range list.Items {
			o := &object{resource: resource, namespace: item.Namespace, name: item.Name, owners: item.OwnerReferences}
			found = append(found, o.describe())
		}
	}
	slices.Sort(found)
	return found
}
