package project

import (
	"slices"
	"strings"
)

// copies are the annotations, besides those that isCopy knows by a part of their name, in which a tool keeps the
// manifest from which it has applied an object.
var copies = []string{
	"kapp.k14s.io/original",                   // kapp
	"objectset.rio.cattle.io/applied",         // rancher, k3s, fleet: base64 of gzip
	"configmanagement.gke.io/declared-config", // Config Sync
}

// isCopy reports whether an annotation may repeat other values of its object: by its name, kubectl's and kopf's for
// example, or because its value has an object of the API, or is compressed.
func isCopy(name string, value any) bool {
	text, _ := value.(string)
	return slices.Contains(copies, name) || strings.Contains(name, "last-applied") ||
		strings.Contains(name, "last-handled") ||
		strings.Contains(text, "apiVersion") || strings.HasPrefix(text, "H4sI") // gzip in base64
}

// removeAnnotations removes the annotations of an object that repeat its values, or all.
func removeAnnotations(object any, all bool) {
	o, _ := object.(map[string]any)
	metadata, _ := o["metadata"].(map[string]any)
	annotations, ok := metadata["annotations"].(map[string]any)
	if !ok {
		return
	}
	if all {
		delete(metadata, "annotations")
		return
	}
	for name, value := range annotations {
		if isCopy(name, value) {
			delete(annotations, name)
		}
	}
}
