package simulation

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bind reports a claim as bound. There is no volume.
func (c *Cluster) bind(ctx context.Context, namespace, name string) (time.Time, error) {
	claim, err := c.claimsOf.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && (claim.DeletionTimestamp != nil ||
		claim.Status.Phase != corev1.ClaimPending) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	claim = claim.DeepCopy()
	claim.Status.Phase, claim.Status.AccessModes, claim.Status.Capacity = corev1.ClaimBound, claim.Spec.AccessModes,
		claim.Spec.Resources.Requests
	claim, err = c.client.CoreV1().PersistentVolumeClaims(namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	if err == nil {
		c.claims.await(ctx, claim)
	}
	return time.Time{}, err
}
