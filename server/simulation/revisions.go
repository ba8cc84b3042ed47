package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// templatePatch is the data of a ControllerRevision: the patch that makes the template of its owner what it was.
type templatePatch struct {
	Spec struct {
		Template patchedTemplate `json:"template"`
	} `json:"spec"`
}

type patchedTemplate struct {
	Directive string `json:"$patch"`
	corev1.PodTemplateSpec
}

// revise returns the ControllerRevision of a template, which it creates if there is none, and the others of the owner,
// the oldest first. A template that was used before becomes the newest again.
func (c *Cluster) revise(ctx context.Context, o owner, template *corev1.PodTemplateSpec,
	collisions *int32) (*appsv1.ControllerRevision, []*appsv1.ControllerRevision, error) {
	var patch templatePatch
	patch.Spec.Template = patchedTemplate{"replace", *template}
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, nil, err
	}
	var current *appsv1.ControllerRevision
	var others []*appsv1.ControllerRevision
	last := int64(0)
	for _, found := range c.indexed(c.revisions, byController, string(o.GetUID())) {
		revision := found.(*appsv1.ControllerRevision)
		if current == nil && sameData(revision.Data.Raw, data) {
			current = revision
			continue
		}
		others = append(others, revision)
		last = max(last, revision.Revision)
	}
	slices.SortStableFunc(others, func(a, b *appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) })
	revisions := c.client.AppsV1().ControllerRevisions(o.GetNamespace())
	switch {
	case current != nil && current.Revision > last:
		return current, others, nil
	case current != nil:
		current = current.DeepCopy()
		current.Revision = last + 1
		current, err = revisions.Update(ctx, current, metav1.UpdateOptions{})
	default:
		hash := hashOf(data, collisions)
		revision := &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: o.GetNamespace(), Name: o.GetName() + "-" + hash, Labels: maps.Clone(template.Labels),
				OwnerReferences: []metav1.OwnerReference{o.reference()},
			},
			Data: runtime.RawExtension{Raw: data}, Revision: last + 1,
		}
		metav1.SetMetaDataLabel(&revision.ObjectMeta, appsv1.ControllerRevisionHashLabelKey, hash)
		current, err = revisions.Create(ctx, revision, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, nil, err
	}
	c.revisions.await(ctx, current)
	return current, others, nil
}

// sameData compares the data of two revisions. The order of fields may differ.
func sameData(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y templatePatch
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return sameTemplate(&x.Spec.Template.PodTemplateSpec, &y.Spec.Template.PodTemplateSpec)
}

// templateOf returns the template of a revision.
func templateOf(revision *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var patch templatePatch
	err := json.Unmarshal(revision.Data.Raw, &patch)
	return &patch.Spec.Template.PodTemplateSpec, err
}

// forgetRevisions deletes the oldest revisions beyond a limit that no pod has and that are not used.
func (c *Cluster) forgetRevisions(ctx context.Context, others []*appsv1.ControllerRevision, limit *int32,
	pods []*corev1.Pod, used ...string) error {
	if limit == nil {
		return nil
	}
	unused := slices.DeleteFunc(slices.Clone(others), func(r *appsv1.ControllerRevision) bool {
		return r.DeletionTimestamp != nil || slices.Contains(used, r.Name) ||
			slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return hasRevision(p, r) })
	})
	for _, r := range unused[:max(len(unused)-int(max(*limit, 0)), 0)] {
		err := c.client.AppsV1().ControllerRevisions(r.Namespace).Delete(ctx, r.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		c.revisions.awaitDeletion(ctx, r)
	}
	return nil
}

// hasRevision reports whether a pod is of a revision: of a StatefulSet it has the name, of a DaemonSet the hash.
func hasRevision(p *corev1.Pod, r *appsv1.ControllerRevision) bool {
	label := p.Labels[appsv1.ControllerRevisionHashLabelKey]
	return label == r.Name || label == r.Labels[appsv1.ControllerRevisionHashLabelKey]
}
