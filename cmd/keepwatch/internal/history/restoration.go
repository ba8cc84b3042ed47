package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/keepwatch/keepwatch/source/history/field"
	"github.com/keepwatch/keepwatch/stream/project"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// restoreManager is the manager of restored fields.
const restoreManager = "keepwatch-restore"

// unchanged is the result of an object that has the state already.
const unchanged = "unchanged"

// restoration writes states of the past to a cluster.
type restoration struct {
	client  dynamic.Interface
	mapper  meta.RESTMapper
	force   bool
	objects []*restored // owners first
	byUID   map[types.UID]*restored
	needed  map[[2]string]*restored // the objects of the kinds that others need, by kind and name
	written atomic.Int64            // of the objects, the first ones
}

// restored is a state that is restored.
type restored struct {
	state  *sink.State
	kind   schema.GroupVersionKind
	object *unstructured.Unstructured // what is applied
	owners []metav1.OwnerReference    // of the state

	resource dynamic.ResourceInterface
	live     *unstructured.Unstructured // nil if it does not exist
	// waits is true if it cannot be tried before another object of the restoration is written: its namespace, or its
	// definition.
	waits    bool
	notes    []string // what a person should know
	problems []string // why it cannot be restored
	result   string
	uid      types.UID // of the live object, once it is written
}

func newRestored(s *sink.State) (*restored, error) {
	owned, err := field.Owned(s.Object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", objectName(s), err)
	}
	text, err := json.Marshal(owned)
	if err != nil {
		return nil, err
	}
	one := &restored{state: s, object: &unstructured.Unstructured{}}
	var about struct {
		Metadata struct{ OwnerReferences []metav1.OwnerReference }
	}
	if err = utiljson.Unmarshal(text, &one.object.Object); err == nil {
		err = json.Unmarshal(s.Object, &about)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", objectName(s), err)
	}
	one.owners, one.kind = about.Metadata.OwnerReferences, one.object.GroupVersionKind()
	one.unbind()
	if one.kind.Kind == "" || one.kind.Kind == "PartialObjectMetadata" {
		return nil, fmt.Errorf("%s: the history has its metadata only", objectName(s))
	}
	one.problems, err = redacted(s)
	return one, err
}

// unbind removes from a volume and a claim what the binding of then has added. A claim that is created has another
// UID: with the UID of then, the volume would be taken for one that was released, and be reclaimed; and a claim that is
// bound to a volume which does not have its UID is lost. Without, they are bound again by their names.
func (o *restored) unbind() {
	switch o.kind.Kind {
	case "PersistentVolume":
		unstructured.RemoveNestedField(o.object.Object, "spec", "claimRef", "uid")
		unstructured.RemoveNestedField(o.object.Object, "spec", "claimRef", "resourceVersion")
	case "PersistentVolumeClaim":
	default:
		return
	}
	annotations := o.object.GetAnnotations()
	maps.DeleteFunc(annotations, func(name, _ string) bool {
		return name == "pv.kubernetes.io/bind-completed" || name == "pv.kubernetes.io/bound-by-controller"
	})
	if annotations != nil {
		o.object.SetAnnotations(annotations)
	}
}

// redacted returns a line for each field whose value sync has not stored. What is written in its place would destroy
// the value that the cluster has.
func redacted(s *sink.State) (lines []string, err error) {
	state, err := field.Decode(s.Object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", objectName(s), err)
	}
	word, err := json.Marshal(project.Redacted)
	if err != nil {
		return nil, err
	}
	for _, f := range field.Changes(nil, state) {
		if bytes.Contains(f.New, word) && isRedacted(f.New) && !f.Path.In("status") {
			lines = append(lines, fmt.Sprintf("the history has %s in place of the value of %s", project.Redacted, f.Path))
		}
	}
	return lines, nil
}

// isRedacted reports whether a value is redacted, or an element of a list.
func isRedacted(value json.RawMessage) bool {
	var text string
	var elements []any
	return json.Unmarshal(value, &text) == nil && text == project.Redacted ||
		json.Unmarshal(value, &elements) == nil && slices.Contains(elements, any(project.Redacted))
}

// first has the kinds that others need.
var first = []string{"CustomResourceDefinition", "Namespace", "PriorityClass", "StorageClass", "ServiceAccount",
	"ClusterRole", "Role", "PersistentVolume"}

// sort orders the objects: definitions and namespaces first, and each owner before what it owns.
func (r *restoration) sort() {
	rank := func(one *restored) int {
		if i := slices.Index(first, one.kind.Kind); i >= 0 {
			return i
		}
		return len(first)
	}
	slices.SortStableFunc(r.objects, func(a, b *restored) int { return cmp.Compare(rank(a), rank(b)) })
	r.byUID, r.needed = map[types.UID]*restored{}, map[[2]string]*restored{}
	for _, one := range r.objects {
		r.byUID[types.UID(one.state.UID)] = one
		if slices.Contains(first, one.kind.Kind) {
			r.needed[[2]string{one.kind.Kind, one.state.Key.Name}] = one
		}
	}
	var sorted []*restored
	done := map[*restored]bool{}
	var add func(*restored)
	add = func(one *restored) {
		if done[one] {
			return
		}
		done[one] = true // also of owners that own each other
		for _, owner := range one.owners {
			if o := r.byUID[owner.UID]; o != nil {
				add(o)
			}
		}
		sorted = append(sorted, one)
	}
	for _, one := range r.objects {
		add(one)
	}
	r.objects = sorted
}

// prepare tries each object, and finds out what cannot be restored, and what a person should know. It writes nothing.
func (r *restoration) prepare(ctx context.Context) error {
	for _, one := range r.objects {
		if err := r.prepareOne(ctx, one); err != nil {
			return fmt.Errorf("%s: %w", objectName(one.state), err)
		}
	}
	return nil
}

func (r *restoration) prepareOne(ctx context.Context, one *restored) (err error) {
	one.waits = r.needed[[2]string{"Namespace", one.state.Key.Namespace}] != nil && !r.exists(ctx, one.state.Key.Namespace)
	definition := r.needed[[2]string{"CustomResourceDefinition", one.state.Resource}]
	switch err := r.open(one); {
	case definition != nil && (definition.live == nil || meta.IsNoMatchError(err)):
		// discovery may show a type for a while whose definition is gone, and one that is there not yet
		one.waits, one.resource = true, nil
	case meta.IsNoMatchError(err):
		one.problems = append(one.problems, fmt.Sprintf("the server does not serve %s", one.kind))
	case err != nil:
		return err
	}
	if one.resource != nil {
		one.live, err = one.resource.Get(ctx, one.state.Key.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			one.live, err = nil, nil
		}
		if err != nil {
			return err
		}
	}
	if one.live != nil && one.live.GetDeletionTimestamp() != nil {
		one.problems = append(one.problems, fmt.Sprintf("it is being deleted, which waits for its finalizers: %s",
			strings.Join(one.live.GetFinalizers(), ", ")))
	}
	if finalizers := one.object.GetFinalizers(); one.live == nil && len(finalizers) > 0 {
		one.notes = append(one.notes, fmt.Sprintf("it gets its finalizers back, which only their controllers remove: %s",
			strings.Join(finalizers, ", ")))
	}
	if err := r.prepareOwners(ctx, one); err != nil {
		return err
	}
	if err := r.prepareVolume(ctx, one); err != nil {
		return err
	}
	if one.waits || len(one.problems) > 0 {
		one.result = "created"
		return nil
	}
	return r.apply(ctx, one, true)
}

// open finds the resource of an object on the server.
func (r *restoration) open(one *restored) error {
	mapping, err := r.mapper.RESTMapping(one.kind.GroupKind(), one.kind.Version)
	if err != nil {
		return err
	}
	one.resource = r.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		one.resource = r.client.Resource(mapping.Resource).Namespace(one.state.Key.Namespace)
	}
	return nil
}

// exists reports whether a namespace exists, as far as that is known.
func (r *restoration) exists(ctx context.Context, namespace string) bool {
	_, err := r.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(ctx, namespace,
		metav1.GetOptions{})
	return !apierrors.IsNotFound(err)
}

// prepareOwners sets the owner references of an object that is created: the UIDs are those of the owners that are
// there now. One that owns it no more is left out, since the garbage collector would delete the object.
func (r *restoration) prepareOwners(ctx context.Context, one *restored) error {
	var references []any
	if one.live != nil {
		if !appliedOwners(one.live) {
			return nil // what it has now stays
		}
		// those that an earlier apply has set would be removed by another without
		for _, owner := range one.live.GetOwnerReferences() {
			references = append(references, reference(owner))
		}
		return unstructured.SetNestedSlice(one.object.Object, references, "metadata", "ownerReferences")
	}
	for _, owner := range one.owners {
		if o := r.byUID[owner.UID]; o != nil && o != one {
			references = append(references, reference(owner)) // with its UID when it is written
			continue
		}
		uid, err := r.liveOwner(ctx, owner, one.state.Key.Namespace)
		switch {
		case err != nil:
			return err
		case uid == "":
			one.notes = append(one.notes, fmt.Sprintf("its owner %s %s does not exist, or is being deleted: it is restored without", owner.Kind,
				owner.Name))
			continue
		case uid != owner.UID:
			one.notes = append(one.notes, fmt.Sprintf("its owner %s %s is another one of that name", owner.Kind, owner.Name))
		}
		owner.UID = uid
		references = append(references, reference(owner))
	}
	if len(references) > 0 {
		return unstructured.SetNestedSlice(one.object.Object, references, "metadata", "ownerReferences")
	}
	return nil
}

// appliedOwners reports whether an earlier restoration has set owner references of an object.
func appliedOwners(live *unstructured.Unstructured) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == restoreManager && m.FieldsV1 != nil && strings.Contains(m.FieldsV1.String(),
			`"f:ownerReferences"`)
	})
}

// liveOwner returns the UID of an owner, empty if it does not exist, or is being deleted.
func (r *restoration) liveOwner(ctx context.Context, owner metav1.OwnerReference, namespace string) (types.UID, error) {
	kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
	mapping, err := r.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var resource dynamic.ResourceInterface = r.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = r.client.Resource(mapping.Resource).Namespace(namespace)
	}
	o, err := resource.Get(ctx, owner.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if o.GetDeletionTimestamp() != nil { // the garbage collector deletes what has it
		return "", nil
	}
	return o.GetUID(), nil
}

func reference(owner metav1.OwnerReference) map[string]any {
	o := map[string]any{"apiVersion": owner.APIVersion, "kind": owner.Kind, "name": owner.Name, "uid": string(owner.UID)}
	if owner.Controller != nil {
		o["controller"] = *owner.Controller
	}
	if owner.BlockOwnerDeletion != nil {
		o["blockOwnerDeletion"] = *owner.BlockOwnerDeletion
	}
	return o
}

// prepareVolume says what becomes of a volume that is created, or of that of a claim.
func (r *restoration) prepareVolume(ctx context.Context, one *restored) error {
	if one.kind.Kind == "PersistentVolume" && one.live == nil {
		policy, _, _ := unstructured.NestedString(one.object.Object, "spec", "persistentVolumeReclaimPolicy")
		if policy == "Delete" {
			one.notes = append(one.notes, "its reclaim policy is Delete: its data may be gone, and goes with its claim")
		}
		return nil
	}
	volume, _, _ := unstructured.NestedString(one.object.Object, "spec", "volumeName")
	if one.kind.Kind != "PersistentVolumeClaim" || one.live != nil || volume == "" {
		return nil
	}
	o, err := r.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}).Get(ctx, volume,
		metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && r.needed[[2]string{"PersistentVolume", volume}] != nil:
		return nil // it is written first
	case apierrors.IsNotFound(err):
		one.notes = append(one.notes, fmt.Sprintf("its volume %s is gone, and its data: the claim gets a new one", volume))
		unstructured.RemoveNestedField(one.object.Object, "spec", "volumeName")
		return nil
	case err != nil:
		return err
	}
	claim, _, _ := unstructured.NestedString(o.Object, "spec", "claimRef", "uid")
	if claim != "" {
		one.notes = append(one.notes, fmt.Sprintf("its volume %s belongs to the claim with the UID %s: "+
			"the claim waits until spec.claimRef.uid of the volume is removed", volume, claim))
	}
	return nil
}

// apply applies an object. With try, nothing is written, and a refusal becomes a problem.
func (r *restoration) apply(ctx context.Context, one *restored, try bool) error {
	options := metav1.ApplyOptions{FieldManager: restoreManager, Force: r.force}
	if try {
		options.DryRun = []string{metav1.DryRunAll}
	}
	applied, err := one.resource.Apply(ctx, one.state.Key.Name, one.object, options)
	var status apierrors.APIStatus
	switch {
	case try && apierrors.IsConflict(err):
		one.problems = append(one.problems, conflicts(err)...)
		return nil
	case try && err != nil && asStatus(err, &status) && status.Status().Code < 500 && !apierrors.IsTooManyRequests(err):
		one.problems = append(one.problems, status.Status().Message)
		return nil
	case err != nil:
		return err
	}
	if !try {
		one.uid = applied.GetUID()
	}
	switch {
	case one.live == nil:
		one.result = "created"
	// the answer of a dry run has the resourceVersion of what is live, also if it differs
	case !try && applied.GetResourceVersion() == one.live.GetResourceVersion() || sameContent(applied, one.live):
		one.result = unchanged
	default:
		one.result = "configured"
	}
	return nil
}

// asStatus reports whether an error is a status of the API.
func asStatus(err error, status *apierrors.APIStatus) bool {
	return errors.As(err, status)
}

// sameContent reports whether two states differ in nothing but their managers.
func sameContent(a, b *unstructured.Unstructured) bool {
	var states [2]*field.State
	for i, object := range []*unstructured.Unstructured{b, a} {
		text, err := json.Marshal(object.Object)
		if err != nil {
			return false
		}
		if states[i], err = field.Decode(text); err != nil {
			return false
		}
	}
	return len(field.Changes(states[0], states[1])) == 0
}

// conflicts returns a line for each manager and field that an apply conflicts with.
func conflicts(err error) (lines []string) {
	var status apierrors.APIStatus
	if asStatus(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			lines = append(lines, fmt.Sprintf("%s at %s: see --force-conflicts", cause.Message, cause.Field))
		}
	}
	if lines == nil {
		lines = []string{err.Error()}
	}
	return lines
}

// write writes the objects, owners first. What the trial has found unchanged is not written: its fields would get
// another manager.
func (r *restoration) write(ctx context.Context) error {
	for _, one := range r.objects {
		if one.result != unchanged {
			one.result = "not written"
		}
	}
	for _, one := range r.objects {
		moved, err := one.follow(r.byUID)
		if err != nil {
			return err
		}
		switch {
		case one.waits:
			err = r.applyWaiting(ctx, one)
		case one.result == unchanged && !moved:
			one.uid = one.live.GetUID()
		default:
			err = r.apply(ctx, one, false)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", objectName(one.state), err)
		}
		r.written.Add(1)
	}
	return nil
}

// servedWithin bounds the wait for a type or a namespace that was written.
const servedWithin = 30 * time.Second

// applyWaiting applies an object whose definition or namespace was written before. Discovery shows a type earlier than
// all API servers of a cluster answer requests for it.
func (r *restoration) applyWaiting(ctx context.Context, one *restored) (err error) {
	const interval = 100 * time.Millisecond
	late := wait.PollUntilContextTimeout(ctx, interval, servedWithin, true, func(ctx context.Context) (bool, error) {
		if one.resource == nil {
			meta.MaybeResetRESTMapper(r.mapper)
			if err = r.open(one); err != nil {
				return false, nil
			}
		}
		err = r.apply(ctx, one, false)
		return !apierrors.IsNotFound(err), nil
	})
	if late != nil && err != nil {
		return fmt.Errorf("%w; its definition and its namespace were written: repeat the command", err)
	}
	return err
}

// follow gives the owner references the UIDs of the written owners, which byUID has by their UIDs of the past. It
// reports whether one has changed.
func (o *restored) follow(byUID map[types.UID]*restored) (moved bool, err error) {
	references, ok, _ := unstructured.NestedSlice(o.object.Object, "metadata", "ownerReferences")
	if !ok {
		return false, nil
	}
	for _, r := range references {
		owner, _ := r.(map[string]any)
		was := types.UID(fmt.Sprint(owner["uid"]))
		if of := byUID[was]; of != nil && of.uid != "" && of.uid != was {
			owner["uid"], moved = string(of.uid), true
		}
	}
	return moved, unstructured.SetNestedSlice(o.object.Object, references, "metadata", "ownerReferences")
}
