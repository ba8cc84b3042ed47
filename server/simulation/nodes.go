package simulation

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// firstNodeName is the name of the node that a cluster without nodes gets.
const firstNodeName = "node-1"

const (
	leaseSeconds = 40
	leaseRenewal = 10 * time.Second
)

// KWOK is the annotation of nodes whose kubelet is KWOK's controller, if it runs: it writes their status and that of
// their pods, and deletes these (https://kwok.sigs.k8s.io/docs/user/kwok-manage-nodes-and-pods/).
const KWOK = "kwok.x-k8s.io/node"

func isKWOKs(node *corev1.Node) bool {
	_, annotated := node.Annotations[KWOK]
	return annotated
}

// EnsureNode creates a node if there is none.
func (c *Cluster) EnsureNode(ctx context.Context) error {
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil || len(nodes.Items) > 0 {
		return err
	}
	_, err = c.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: firstNodeName,
		Labels: map[string]string{
			corev1.LabelHostname: firstNodeName, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}}}, metav1.CreateOptions{})
	return err
}

// register writes the status of a new node, removes its taint when it is ready, and renews its lease. The status and
// the lease of its nodes are KWOK's.
func (c *Cluster) register(ctx context.Context, _, name string) (time.Time, error) {
	node, err := c.nodesOf.Get(name)
	if apierrors.IsNotFound(err) || err == nil && node.DeletionTimestamp != nil {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	if nodeCondition(node, corev1.NodeReady) == nil && !isKWOKs(node) {
		node = node.DeepCopy()
		c.fillNode(node)
		if node, err = c.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			return time.Time{}, err
		}
		c.nodes.await(ctx, node)
	}
	if !isNodeReady(node) {
		return time.Time{}, nil
	}
	if ready := withoutNotReady(node.Spec.Taints); len(ready) < len(node.Spec.Taints) {
		node = node.DeepCopy()
		node.Spec.Taints = ready
		if node, err = c.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
			return time.Time{}, err
		}
		c.nodes.await(ctx, node)
	}
	if isKWOKs(node) {
		return time.Time{}, nil
	}
	return c.renew(ctx, node)
}

// withoutNotReady returns taints without the one that a node has until it is ready.
func withoutNotReady(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeNotReady && t.Effect == corev1.TaintEffectNoSchedule
	})
}

// fillNode sets the status of a ready node. Capacity that was given stays.
func (c *Cluster) fillNode(node *corev1.Node) {
	status := &node.Status
	if status.Capacity == nil {
		status.Capacity = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("110"),
		}
	}
	if status.Allocatable == nil {
		status.Allocatable = status.Capacity
	}
	if len(status.Addresses) == 0 {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(node.Name))
		sum := hash.Sum32()
		status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.128.%d.%d", byte(sum>>8), byte(sum))},
			{Type: corev1.NodeHostName, Address: node.Name},
		}
	}
	status.Phase = corev1.NodeRunning
	status.NodeInfo.OperatingSystem, status.NodeInfo.Architecture = "linux", "amd64"
	status.NodeInfo.KubeletVersion, status.NodeInfo.ContainerRuntimeVersion = "simulated", "simulation://"
	now := metav1.NewTime(c.clock.Now())
	for _, condition := range []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "the node is simulated"},
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID"},
	} {
		if nodeCondition(node, condition.Type) == nil {
			condition.LastHeartbeatTime, condition.LastTransitionTime = now, now
			status.Conditions = append(status.Conditions, condition)
		}
	}
}

// renew creates or renews the lease of a node, and returns when to do so again.
func (c *Cluster) renew(ctx context.Context, node *corev1.Node) (time.Time, error) {
	now := c.clock.Now()
	renewed := metav1.NewMicroTime(now)
	leases := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := c.leasesOf.Leases(corev1.NamespaceNodeLease).Get(node.Name)
	switch {
	case apierrors.IsNotFound(err):
		seconds := int32(leaseSeconds)
		lease, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: node.Name, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
			}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &node.Name, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
		}, metav1.CreateOptions{})
	case err == nil && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.Add(leaseRenewal).After(now):
		return lease.Spec.RenewTime.Add(leaseRenewal), nil
	case err == nil:
		lease = lease.DeepCopy()
		lease.Spec.RenewTime, lease.Spec.HolderIdentity = &renewed, &node.Name
		lease, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return time.Time{}, err
	}
	c.leases.await(ctx, lease)
	return now.Add(leaseRenewal), nil
}

func nodeCondition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

func isNodeReady(node *corev1.Node) bool {
	ready := nodeCondition(node, corev1.NodeReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}
