package columns

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

var nodeView = show(
	func(node *corev1.Node) []any {
		info := node.Status.NodeInfo
		return []any{
			node.Name, nodeStatus(node), nodeRoles(node), age(node), info.KubeletVersion,
			nodeAddress(node, corev1.NodeInternalIP), nodeAddress(node, corev1.NodeExternalIP),
			orElse(info.OSImage, unknown), nodeKernel(info), orElse(info.ContainerRuntimeVersion, unknown),
		}
	},
	nameColumn,
	text("Status", "Whether the node is ready, and whether new pods may be scheduled to it."),
	text("Roles", "The roles that the node's labels give it."),
	ageColumn,
	text("Version", described(corev1.NodeSystemInfo{}, "kubeletVersion")),
	wide(text("Internal-IP", described(corev1.NodeStatus{}, "addresses"))),
	wide(text("External-IP", described(corev1.NodeStatus{}, "addresses"))),
	wide(text("OS-Image", described(corev1.NodeSystemInfo{}, "osImage"))),
	wide(text("Kernel-Version", described(corev1.NodeSystemInfo{}, "kernelVersion"))),
	wide(text("Container-Runtime", described(corev1.NodeSystemInfo{}, "containerRuntimeVersion"))),
)

// nodeStatus returns whether the node is ready, and SchedulingDisabled for a cordoned one.
func nodeStatus(node *corev1.Node) string {
	status := "Unknown"
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		status = "NotReady"
		if condition.Status == corev1.ConditionTrue {
			status = "Ready"
		}
	}
	if node.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// nodeRoles returns the roles of the labels node-role.kubernetes.io/ROLE and kubernetes.io/role=ROLE.
func nodeRoles(node *corev1.Node) string {
	var roles []string
	for key, value := range node.Labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok {
			value, key = role, "kubernetes.io/role"
		}
		if key == "kubernetes.io/role" && value != "" {
			roles = append(roles, value)
		}
	}
	slices.Sort(roles)
	return orElse(strings.Join(slices.Compact(roles), ","), none)
}

// nodeKernel returns the version of the kernel, with the architecture if it is known.
func nodeKernel(info corev1.NodeSystemInfo) string {
	version := orElse(info.KernelVersion, unknown)
	if info.Architecture == "" {
		return version
	}
	return version + " (" + info.Architecture + ")"
}

// nodeAddress returns the node's first address of a type.
func nodeAddress(node *corev1.Node, addressType corev1.NodeAddressType) string {
	for _, address := range node.Status.Addresses {
		if address.Type == addressType {
			return address.Address
		}
	}
	return none
}
