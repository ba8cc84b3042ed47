package controlplane

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// content is what is known of the contents of a terminating namespace after they were deleted as far as possible.
type content struct {
	// undiscovered is why some resources are unknown.
	undiscovered error
	// failed are the errors of single resources.
	failed []error
	// remaining and finalizers count the objects that are left, by resource and by finalizer.
	remaining  map[schema.GroupVersionResource]int
	finalizers map[string]int
}

func (c *content) add(resource schema.GroupVersionResource, remaining *metav1.PartialObjectMetadataList) {
	if len(remaining.Items) == 0 {
		return
	}
	if c.remaining == nil {
		c.remaining, c.finalizers = map[schema.GroupVersionResource]int{}, map[string]int{}
	}
	c.remaining[resource] = len(remaining.Items)
	for _, object := range remaining.Items {
		for _, finalizer := range object.Finalizers {
			c.finalizers[finalizer]++
		}
	}
}

// incomplete returns why the namespace cannot go yet: an error, or errContentRemains.
func (c *content) incomplete() error {
	if err := errors.Join(append([]error{c.undiscovered}, c.failed...)...); err != nil {
		return err
	}
	if len(c.remaining) > 0 {
		return errContentRemains
	}
	return nil
}

// describe sets the conditions of kube-controller-manager, and reports whether that changes any.
func (c *content) describe(status *corev1.NamespaceStatus) (changed bool) {
	for _, condition := range []corev1.NamespaceCondition{
		c.discovery(),
		{Type: corev1.NamespaceDeletionGVParsingFailure, Status: corev1.ConditionFalse,
			Reason: "ParsedGroupVersions", Message: "All legacy kube types successfully parsed"},
		c.deletion(), c.contentRemaining(), c.finalizersRemaining(),
	} {
		changed = setNamespaceCondition(status, condition) || changed
	}
	return changed
}

func setNamespaceCondition(status *corev1.NamespaceStatus, condition corev1.NamespaceCondition) (changed bool) {
	condition.LastTransitionTime = metav1.Now()
	i := slices.IndexFunc(status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == condition.Type })
	if i < 0 {
		status.Conditions = append(status.Conditions, condition)
		return true
	}
	old := &status.Conditions[i]
	if old.Status == condition.Status {
		condition.LastTransitionTime = old.LastTransitionTime
	}
	changed = old.Status != condition.Status || old.Reason != condition.Reason || old.Message != condition.Message
	*old = condition
	return changed
}

func (c *content) discovery() corev1.NamespaceCondition {
	if c.undiscovered != nil {
		return corev1.NamespaceCondition{Type: corev1.NamespaceDeletionDiscoveryFailure, Status: corev1.ConditionTrue,
			Reason: "DiscoveryFailed", Message: c.undiscovered.Error()}
	}
	return corev1.NamespaceCondition{Type: corev1.NamespaceDeletionDiscoveryFailure, Status: corev1.ConditionFalse,
		Reason: "ResourcesDiscovered", Message: "All resources successfully discovered"}
}

func (c *content) deletion() corev1.NamespaceCondition {
	if len(c.failed) > 0 {
		var messages []string
		for _, err := range c.failed {
			messages = append(messages, err.Error())
		}
		slices.Sort(messages)
		return corev1.NamespaceCondition{Type: corev1.NamespaceDeletionContentFailure, Status: corev1.ConditionTrue,
			Reason: "ContentDeletionFailed", Message: fmt.Sprintf("Failed to delete all resource types, %d remaining: %s",
				len(messages), strings.Join(messages, ", "))}
	}
	return corev1.NamespaceCondition{Type: corev1.NamespaceDeletionContentFailure, Status: corev1.ConditionFalse,
		Reason: "ContentDeleted", Message: "All content successfully deleted, may be waiting on finalization"}
}

func (c *content) contentRemaining() corev1.NamespaceCondition {
	if len(c.remaining) > 0 {
		var messages []string
		for resource, n := range c.remaining {
			messages = append(messages, fmt.Sprintf("%s.%s has %d resource instances", resource.Resource, resource.Group, n))
		}
		slices.Sort(messages)
		return corev1.NamespaceCondition{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue,
			Reason: "SomeResourcesRemain", Message: "Some resources are remaining: " + strings.Join(messages, ", ")}
	}
	return corev1.NamespaceCondition{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionFalse,
		Reason: "ContentRemoved", Message: "All content successfully removed"}
}

func (c *content) finalizersRemaining() corev1.NamespaceCondition {
	if len(c.finalizers) > 0 {
		var messages []string
		for _, finalizer := range slices.Sorted(maps.Keys(c.finalizers)) {
			messages = append(messages, fmt.Sprintf("%s in %d resource instances", finalizer, c.finalizers[finalizer]))
		}
		return corev1.NamespaceCondition{Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionTrue,
			Reason: "SomeFinalizersRemain", Message: "Some content in the namespace has finalizers remaining: " +
				strings.Join(messages, ", ")}
	}
	return corev1.NamespaceCondition{Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionFalse,
		Reason: "ContentHasNoFinalizers", Message: "All content-preserving finalizers finished"}
}
