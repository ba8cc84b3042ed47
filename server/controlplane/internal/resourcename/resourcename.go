// Package resourcename classifies the resources that containers request by their names, as kube-apiserver does.
package resourcename

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Native reports whether a resource is one of Kubernetes itself: its name has no domain, or kubernetes.io.
func Native(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// Extended reports whether a resource is an extended one, such as a device, and a quota may name it.
func Extended(name corev1.ResourceName) bool {
	return !Native(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

// HugePages reports whether a resource is huge pages of one size.
func HugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// Overcommitted reports whether a request may be below its limit: huge pages and extended resources may not.
func Overcommitted(name corev1.ResourceName) bool { return Native(name) && !HugePages(name) }
