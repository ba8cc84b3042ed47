package operators

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
)

// ForeignAnnotation is what somebody else writes to an object in the plans foreign-edit and foreign-annotation.
const ForeignAnnotation = "judge.keepwatch.io/foreign"

// editBefore adds ForeignAnnotation to the object of a write, and ForeignFinalizer unless it is being deleted. After
// the write the finalizer is removed.
func editBefore(d *disturbance, x exchange) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.q.Context()), pollBound)
	defer cancel()
	objects := x.t.world.objects.Resource(x.resource()).Namespace(x.record.Namespace)
	edited, err := change(ctx, objects, infoOf(x.q).Name, func(o *unstructured.Unstructured) {
		notes := o.GetAnnotations()
		if notes == nil {
			notes = map[string]string{}
		}
		notes[ForeignAnnotation] = "edited"
		o.SetAnnotations(notes)
		if o.GetDeletionTimestamp() == nil {
			o.SetFinalizers(append(o.GetFinalizers(), ForeignFinalizer))
		}
	})
	if err == nil {
		d.mu.Lock()
		d.edited = edited.GetUID()
		d.mu.Unlock()
		d.happens("somebody annotates the object, and adds a finalizer, before the write arrives")
	} else if !apierrors.IsNotFound(err) {
		d.fail(fmt.Errorf("annotate %s: %w", x.record.object(), err))
	}
	x.serve()
	if err != nil || edited.GetDeletionTimestamp() != nil {
		return
	}
	lost, err := takeBack(ctx, objects, edited)
	if err != nil {
		d.fail(fmt.Errorf("remove the finalizer of %s: %w", x.record.object(), err))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = lost
}

// change reads and writes an object, until nobody else writes it in between.
func change(ctx context.Context, objects dynamic.ResourceInterface, name string,
	edit func(*unstructured.Unstructured)) (changed *unstructured.Unstructured, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		o, err := objects.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(o)
		changed, err = objects.Update(ctx, o, metav1.UpdateOptions{})
		return err
	})
	return changed, err
}

// takeBack removes ForeignFinalizer from an object, and reports whether somebody else has done that.
func takeBack(ctx context.Context, objects dynamic.ResourceInterface, edited *unstructured.Unstructured) (bool, error) {
	lost := true
	_, err := change(ctx, objects, edited.GetName(), func(o *unstructured.Unstructured) {
		lost = !isBlocked(o, edited.GetUID())
		o.SetFinalizers(withoutForeign(o))
	})
	if apierrors.IsNotFound(err) {
		return true, nil // with the finalizer it would be there
	}
	return lost, err
}

// withoutForeign returns the finalizers of an object without that of somebody else.
func withoutForeign(o *unstructured.Unstructured) []string {
	return slices.DeleteFunc(o.GetFinalizers(), func(name string) bool { return name == ForeignFinalizer })
}

// deleteNamespace ends the comparison with the reference: from here on, the namespace has to go.
func deleteNamespace(d *disturbance, x exchange) {
	x.awaitPerformed() // the step may have more objects in it
	namespaces := x.t.world.objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	err := namespaces.Delete(x.q.Context(), x.record.Namespace, metav1.DeleteOptions{})
	switch {
	case err == nil:
		d.mu.Lock()
		d.gone = x.record.Namespace
		d.mu.Unlock()
		d.happens("the namespace is deleted before the write arrives")
	case !apierrors.IsNotFound(err):
		d.fail(fmt.Errorf("delete the namespace %s: %w", x.record.Namespace, err))
	}
	x.serve()
}

// deletedNamespace returns the namespace that is gone, or nothing.
func (d *disturbance) deletedNamespace() string {
	if d == nil {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gone
}

// withdrawnKind is the kind of plans in which what a step has created is deleted again.
const withdrawnKind = "owner-gone"

// withdraw deletes what the step of the plan has created. From here on, that has to go, and all that the operator has
// made of it.
func withdraw(d *disturbance, x exchange) {
	x.awaitPerformed()
	if err := d.run.withdraw(x.q.Context()); err != nil {
		d.fail(err)
	} else {
		d.mu.Lock()
		d.withdrawn = true
		d.mu.Unlock()
		d.happens("somebody deletes what the step has created, before the write arrives")
	}
	x.serve()
}

func (r *run) withdraw(ctx context.Context) error {
	for _, o := range r.steps[r.fault.place.Step].objects {
		o = o.DeepCopy()
		resource, err := r.world.resource(o)
		if err == nil {
			err = resource.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// isWithdrawn reports whether what the plan's step has created was deleted.
func (d *disturbance) isWithdrawn() bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.withdrawn
}

// isWithdrawable reports whether all objects of a write's step are new, so that the state before the step is that
// without them.
func (ref *reference) isWithdrawable(p Place) bool {
	if p.Step == 0 || len(ref.applied[p.Step]) == 0 {
		return false
	}
	for _, key := range ref.applied[p.Step] {
		_, before := ref.states[p.Step-1][key]
		if _, after := ref.states[p.Step][key]; before || !after {
			return false
		}
	}
	return true
}

// withoutStep compares a state with that before a step, whose objects are gone. What the operator keeps in a later
// state without them may stay.
func (ref *reference) withoutStep(n int, have state, of typeSet) []difference {
	var all []difference
	for _, d := range differences(ref.states[n-1].of(of), ref.masks[n-1].on(have)) {
		if d.path == "" && d.want == "" {
			if ref.isRetained(n, d.key) {
				continue
			}
			d.left = true
		}
		all = append(all, d)
	}
	return all
}

func (ref *reference) isRetained(n int, key string) bool {
	for _, later := range ref.states[n+1:] {
		_, kept := later[key]
		for _, owner := range ref.applied[n] {
			_, exists := later[owner]
			kept = kept && !exists
		}
		if kept {
			return true
		}
	}
	return false
}

// objects returns the endpoint of the object of the plan's write.
func (r *run) objects() dynamic.ResourceInterface {
	place := r.fault.place
	for gvr := range r.ref.types[place.Step] {
		if gvr.GroupResource().String() == place.Resource {
			return r.world.objects.Resource(gvr).Namespace(place.Namespace)
		}
	}
	panic("unreachable: the operator has written " + place.key())
}

// deleteObject deletes the object of the plan's write, if it is there, and waits again.
func (r *run) deleteObject(ctx context.Context, n int) error {
	o, err := r.object(ctx, n)
	if o == nil || err != nil {
		return err
	}
	r.fault.happens("somebody deletes %s", r.fault.place.key())
	if err := r.objects().Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil {
		return err
	}
	return r.settleAgain(ctx, n)
}

// recreateObject deletes the object of the plan's write, if it is there, creates it again, and waits again. The
// operator sees both together, unless it has to remove a finalizer in between.
func (r *run) recreateObject(ctx context.Context, n int) error {
	o, err := r.object(ctx, n)
	if o == nil || err != nil || o.GetDeletionTimestamp() != nil {
		return err
	}
	if len(o.GetFinalizers()) == 0 {
		r.world.traffic.delay(r.fault.place.Resource, func() {})
		defer r.world.traffic.deliver()
	}
	r.fault.happens("somebody deletes %s, and creates it again", r.fault.place.key())
	if err := r.objects().Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil {
		return err
	}
	gone, err := r.until(ctx, n, func() (bool, error) {
		now, err := r.objects().Get(ctx, o.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return err == nil && now.GetUID() != o.GetUID(), err
	})
	if err != nil {
		return err
	}
	if !gone {
		r.outcome.unfulfilled = fmt.Sprintf("step %d: %s, which somebody has deleted, does not go", n, r.fault.place.key())
		return errEnded
	}
	_, err = r.objects().Create(ctx, withoutIdentity(o), metav1.CreateOptions{})
	switch {
	case apierrors.IsInvalid(err): // it has fields that only the server may set
		return r.tooEarly(ctx, err)
	case err != nil && !apierrors.IsAlreadyExists(err): // the operator may be faster
		return err
	}
	r.world.traffic.deliver()
	return r.settleAgain(ctx, n)
}

// withoutIdentity returns an object as it is created from a copy that was saved before.
func withoutIdentity(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	return o
}

// object returns the object of the plan's write, or nil if it is not there at the end of step n.
func (r *run) object(ctx context.Context, n int) (*unstructured.Unstructured, error) {
	place := r.fault.place
	if _, exists := r.outcome.states[n][place.key()]; !exists {
		return nil, nil
	}
	name, err := r.actualName(ctx, place)
	if err != nil {
		return nil, err
	}
	return r.objects().Get(ctx, name, metav1.GetOptions{})
}

// actualName returns the name of the object of a write: of several with random names, the first one.
func (r *run) actualName(ctx context.Context, place Place) (string, error) {
	if !isPattern(place.Name) {
		return place.Name, nil
	}
	list, err := r.objects().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	patterns := r.world.traffic.patterns()
	var names []string
	for _, o := range list.Items {
		if nameOf(patterns, place.Resource, &o) == place.Name {
			names = append(names, o.GetName())
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("there is no %s", place.key())
	}
	return slices.Min(names), nil
}

// settleAgain waits for the operator at the end of a step in which it had arrived.
func (r *run) settleAgain(ctx context.Context, n int) error {
	r.compared = 0
	r.outcome.leave(n)
	return r.settle(ctx, n)
}

// insistence is the number of times that somebody annotates an object that loses the annotation.
const insistence = 3

// insist annotates the object of the plan's write, if it is there, until it keeps the annotation while the operator
// becomes quiet.
func (r *run) insist(ctx context.Context, n int) error {
	place := r.fault.place
	if _, exists := r.outcome.states[n][place.key()]; !exists {
		return nil
	}
	edit := fmt.Sprintf(`{"metadata":{"annotations":{%q:"edited"}}}`, ForeignAnnotation)
	for range insistence {
		r.fault.happens("somebody annotates %s", place.key())
		o, err := r.objects().Patch(ctx, place.Name, types.MergePatchType, []byte(edit), metav1.PatchOptions{})
		if err != nil {
			return err
		}
		if err := r.settleAgain(ctx, n); err != nil {
			return err
		}
		now, err := r.objects().Get(ctx, place.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !lacksAnnotation(*now, o.GetUID()) {
			return nil
		}
		r.outcome.undone++
	}
	return nil
}

// ForeignFinalizer is what somebody else adds to an object in the plan foreign-finalizer.
const ForeignFinalizer = "judge.keepwatch.io/foreign"

// goesLater reports whether a write creates an object that is gone after a later step.
func (ref *reference) goesLater(p Place) bool {
	if !ref.creates(p) {
		return false
	}
	for _, later := range ref.states[p.Step+1:] {
		if _, exists := later[p.key()]; !exists {
			return true
		}
	}
	return false
}

// hold adds the finalizer of somebody else to the object of the plan's write, if it is there, and waits again.
func (r *run) hold(ctx context.Context, n int) error {
	place := r.fault.place
	if _, exists := r.outcome.states[n][place.key()]; !exists {
		return nil
	}
	held, err := change(ctx, r.objects(), place.Name, func(o *unstructured.Unstructured) {
		o.SetFinalizers(append(o.GetFinalizers(), ForeignFinalizer))
	})
	if err != nil {
		return err
	}
	r.fault.setHeld(held.GetUID())
	r.fault.happens("somebody adds a finalizer to %s", place.key())
	return r.settleAgain(ctx, n)
}

// release removes the finalizer of somebody else if the object is being deleted.
func (r *run) release(ctx context.Context) (bool, error) {
	place := r.fault.place
	o, err := r.objects().Get(ctx, place.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && !isBlocked(o, r.fault.blockedUID()):
		r.outcome.overwritten = append(r.outcome.overwritten,
			fmt.Sprintf("%s has lost the finalizer %s, which somebody had added", place.key(), ForeignFinalizer))
		r.fault.setHeld("")
		return false, nil
	case err != nil || o.GetDeletionTimestamp() == nil:
		return false, err
	}
	_, err = change(ctx, r.objects(), place.Name, func(o *unstructured.Unstructured) {
		o.SetFinalizers(withoutForeign(o))
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	r.fault.setHeld("")
	r.world.traffic.note("somebody removes the finalizer of " + place.key())
	return true, nil
}

// isBlocked reports whether an object is that of a UID, and has the finalizer of somebody else.
func isBlocked(o *unstructured.Unstructured, uid types.UID) bool {
	return o.GetUID() == uid && slices.Contains(o.GetFinalizers(), ForeignFinalizer)
}

// blockedUID returns the UID of the object that has the finalizer of somebody else.
func (d *disturbance) blockedUID() types.UID {
	if d == nil {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.holds
}

// hasLost reports whether the finalizer of foreign-edit was removed.
func (d *disturbance) hasLost() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost
}

func (d *disturbance) setHeld(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holds = uid
}

// checkAnnotation looks for what somebody else has written to the object at the end of the plan's step.
func (r *run) checkAnnotation(ctx context.Context) error {
	if r.fault.Name != "foreign-edit" {
		return nil
	}
	place := r.fault.place
	if r.fault.hasLost() {
		r.outcome.overwritten = append(r.outcome.overwritten,
			fmt.Sprintf("%s has lost the finalizer %s, which somebody had added", place.key(), ForeignFinalizer))
	}
	patterns := r.world.traffic.patterns()
	for gvr := range r.world.traffic.touchedTypes() {
		if gvr.GroupResource().String() != place.Resource {
			continue
		}
		list, err := r.world.objects.Resource(gvr).Namespace(place.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, o := range list.Items {
			if nameOf(patterns, place.Resource, &o) == place.Name && lacksAnnotation(o, r.fault.edited) {
				r.outcome.overwritten = append(r.outcome.overwritten,
					fmt.Sprintf("%s is without the annotation %s, which somebody had added", place.key(), ForeignAnnotation))
			}
		}
	}
	return nil
}

// lacksAnnotation reports whether an object that existed at the edit has lost the annotation.
func lacksAnnotation(o unstructured.Unstructured, edited types.UID) bool {
	_, has := o.GetAnnotations()[ForeignAnnotation]
	return !has && o.GetUID() == edited
}
