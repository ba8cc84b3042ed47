package columns

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/keepwatch/keepwatch/server/readpath"
)

// Cells without a value.
const (
	none    = "<none>"
	unknown = "<unknown>"
	unset   = "<unset>"
)

// age returns the age of an object.
func age(object metav1.Object) any { return since(object.GetCreationTimestamp().Time) }

// since returns the time since a date, rounded as by kubectl, or unknown for the zero time.
func since(date time.Time) any {
	if date.IsZero() {
		return unknown
	}
	return readpath.Since{Time: date}
}

// orElse returns s, or otherwise when s is empty.
func orElse[S ~string](s S, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return string(s)
}

// deref returns what p points to, or otherwise when it is nil.
func deref[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// yesNo returns True or False, or unset for nil.
func yesNo(p *bool) string {
	switch {
	case p == nil:
		return unset
	case *p:
		return "True"
	default:
		return "False"
	}
}

// joined returns the items' names with commas between them.
func joined[T any](items []T, name func(T) string) string {
	names := make([]string, len(items))
	for i, item := range items {
		names[i] = name(item)
	}
	return strings.Join(names, ",")
}

// firstFew joins up to limit of all items and counts the others.
func firstFew(all []string, limit int, separator string) string {
	if len(all) <= limit {
		return strings.Join(all, separator)
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(all[:limit], separator), len(all)-limit)
}

// labelsOf returns labels as key=value, sorted, or none.
func labelsOf(set map[string]string) string { return labels.FormatLabels(set) }

// selectorOf returns a label selector as kubectl's -l takes it, or none.
func selectorOf(selector *metav1.LabelSelector) string { return metav1.FormatLabelSelector(selector) }

// containerNames and containerImages list a template's containers without its init containers.
func containerNames(template corev1.PodSpec) string {
	return joined(template.Containers, func(c corev1.Container) string { return c.Name })
}

func containerImages(template corev1.PodSpec) string {
	return joined(template.Containers, func(c corev1.Container) string { return c.Image })
}

// The wide columns that workloads share.
var (
	containersColumn = wide(text("Containers", "Names of the containers in the pod template."))
	imagesColumn     = wide(text("Images", "Images of the containers in the pod template."))
)
