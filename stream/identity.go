package stream

import (
	"cmp"
	"fmt"
	"strings"
)

// Identity identifies the stream that a state on disk belongs to. Two runs may share a
// state if their identities match.
type Identity struct {
	Cluster Cluster `json:"cluster"`
	// Resource is the name with its group: "pods", "deployments.apps". It has no version,
	// because all versions have the same objects and revisions.
	Resource      string `json:"resource"`
	Namespace     string `json:"namespace,omitempty"` // empty: all, or a cluster-scoped resource
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
}

// Cluster identifies a cluster: by its UID if both are known, and otherwise by its
// address.
type Cluster struct {
	// UID is the UID of the namespace kube-system, which exists as long as its cluster.
	UID    string `json:"uid,omitempty"`
	Server string `json:"server"` // its address
}

// Same reports whether two runs have reached the same cluster.
func (c Cluster) Same(o Cluster) bool {
	if c.UID != "" && o.UID != "" {
		return c.UID == o.UID
	}
	return c.Server == o.Server
}

// Updated returns what a later run o knows of the cluster, with the UID of c if o could not read it.
func (c Cluster) Updated(o Cluster) Cluster {
	return Cluster{UID: cmp.Or(o.UID, c.UID), Server: o.Server}
}

func (c Cluster) String() string {
	if c.UID == "" {
		return c.Server
	}
	return fmt.Sprintf("%s (%s)", c.Server, c.UID)
}

// Matches reports whether two runs of i and o may share a state.
func (i Identity) Matches(o Identity) bool {
	same := i.Cluster.Same(o.Cluster)
	i.Cluster, o.Cluster = Cluster{}, Cluster{}
	return same && i == o
}

// String returns the identity for people: "pods with labels app=a in namespace b of
// cluster …".
func (i Identity) String() string {
	var s strings.Builder
	s.WriteString(i.Resource)
	sep := " with"
	if i.LabelSelector != "" {
		fmt.Fprintf(&s, "%s labels %s", sep, i.LabelSelector)
		sep = " and"
	}
	if i.FieldSelector != "" {
		fmt.Fprintf(&s, "%s fields %s", sep, i.FieldSelector)
	}
	if i.Namespace != "" {
		fmt.Fprintf(&s, " in namespace %s", i.Namespace)
	} else {
		s.WriteString(" in all namespaces")
	}
	fmt.Fprintf(&s, " of cluster %s", i.Cluster)
	return s.String()
}
