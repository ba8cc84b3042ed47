package controlplane

import (
	"fmt"
	"slices"
)

// scale is the size of a story.
type scale struct{ nodes, deployments, pods int }

// fate is what happens to a Deployment before the end.
type fate int

const (
	stays             fate = iota
	goesWithNamespace      // its namespace is deleted
	goesInBackground       // it is deleted, and the garbage collector deletes its pods
	goesInForeground       // it is deleted after the garbage collector has deleted its pods
	leavesOrphans          // it is deleted, and its ReplicaSets stay
)

// app is a Deployment with a Service and a PodDisruptionBudget, all of the same name.
type app struct {
	namespace, name string
	replicas        int
	updated         bool // its image is changed by a rolling update
	fate            fate
}

const (
	namespaces        = 10
	deletedNamespaces = 2 // the last ones
	drainedPart       = 10
)

func namespaceName(i int) string { return fmt.Sprintf("team-%d", i) }

func nodeName(i int) string { return fmt.Sprintf("node-%03d", i) }

// drained reports whether the node is drained: one of ten.
func drained(i int) bool { return i%drainedPart == 0 }

// apps returns the Deployments of a story.
func (s scale) apps() []app {
	all := make([]app, s.deployments)
	for i := range all {
		all[i] = app{
			namespace: namespaceName(i % namespaces), name: fmt.Sprintf("app-%03d", i),
			replicas: s.pods / s.deployments, updated: i%3 == 0,
		}
		if i < s.pods%s.deployments {
			all[i].replicas++
		}
		switch {
		case i%namespaces >= namespaces-deletedNamespaces:
			all[i].fate = goesWithNamespace
		case i%20 == 3:
			all[i].fate = goesInBackground
		case i%20 == 7:
			all[i].fate = goesInForeground
		case i%20 == 11:
			all[i].fate = leavesOrphans
		}
	}
	return all
}

// image returns the image of an app's pods.
func (a app) image(updated bool) string {
	if updated && a.updated {
		return "registry.example.com/" + a.name + ":2"
	}
	return "registry.example.com/" + a.name + ":1"
}

// want describes the state that a story leads to, in the words of [state.describe].
func (s scale) want() []string {
	var lines []string
	for i := range namespaces - deletedNamespaces {
		lines = append(lines, fmt.Sprintf("namespace %s: Active", namespaceName(i)))
	}
	for i := range s.nodes {
		lines = append(lines, fmt.Sprintf("node %s: ready", nodeName(i)))
	}
	for _, a := range s.apps() {
		if a.fate != goesWithNamespace {
			lines = append(lines, a.want()...)
		}
	}
	slices.Sort(lines)
	return lines
}

func (a app) want() []string {
	name, owner, pods := a.namespace+"/"+a.name, a.name, a.replicas
	var lines []string
	switch a.fate {
	case stays:
		lines = append(lines, fmt.Sprintf("deployment %s: %d available of %s", name, a.replicas, a.image(true)))
	case leavesOrphans:
		owner = "nothing"
	default:
		pods = 0
	}
	if pods > 0 {
		revision := 1
		if a.updated {
			lines = append(lines, fmt.Sprintf("replica set %s: revision 1, 0 pods, owned by %s", name, owner))
			revision = 2
		}
		lines = append(lines, fmt.Sprintf("replica set %s: revision %d, %d pods, owned by %s", name, revision, pods, owner),
			fmt.Sprintf("pods %s: %d run %s", name, pods, a.image(true)))
	}
	return append(lines, fmt.Sprintf("service %s: %d endpoints", name, pods),
		fmt.Sprintf("disruption budget %s: %d healthy of %d", name, pods, pods))
}
