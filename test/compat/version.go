package compat

import "strings"

// version is a version of Kubernetes' libraries.
type version struct {
	kubernetes string // of k8s.io/api, apimachinery and client-go
	// runtime is the version of controller-runtime, "" where informer/clientgo is only compiled: nobody replaces an
	// informer of a client-go that is older than v0.35.
	runtime string
	tag     string // of informer/clientgo
	// replace has a replacement of what the version requires and the module proxy refuses, for go mod edit -replace.
	replace string
}

// versions has the newest patch of each minor version, the oldest first. The newest controller-runtime goes with the
// last two.
var versions = []version{
	{"v0.33.13", "", "k8s_v0.35", ""},
	{"v0.34.13", "", "k8s_v0.35", ""},
	{"v0.35.10", "v0.23.3", "k8s_v0.35", ""},
	{"v0.36.6", "v0.24.1", "k8s_v0.36", ""},
	{"v0.37.2", "v0.25.2", "k8s_newest", ""},
	{"v0.38.0-beta.0", "v0.25.2", "k8s_v0.38",
		"sigs.k8s.io/structured-merge-diff/v7@v7.0.1=sigs.k8s.io/structured-merge-diff/v7@v7.0.0"},
}

// selected returns the versions in a list that is separated by spaces, or all of them if it is empty.
func selected(list string) (chosen []version, unknown []string) {
	if strings.TrimSpace(list) == "" {
		return versions, nil
	}
names:
	for _, name := range strings.Fields(list) {
		for _, v := range versions {
			if v.kubernetes == name {
				chosen = append(chosen, v)
				continue names
			}
		}
		unknown = append(unknown, name)
	}
	return chosen, unknown
}
