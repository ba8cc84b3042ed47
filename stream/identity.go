package stream

import (
	"cmp"
	"fmt"
	"strings"
)

// Identity says what a state on disk is the state of. Two runs may share a state
// if their identities match.
type Identity struct {
	Cluster Cluster `json:"cluster"`
	// Resource is the name with its group: "pods", "deployments.apps". The version
	// is left out, since the objects and their revisions are the same in all.
	Resource      string `json:"resource"`
	Namespace     string `json:"namespace,omitempty"` // empty for all, or for a cluster-scoped resource
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
}

// Cluster tells clusters apart. Where the UIDs are known they decide, else the
// addresses do.
type Cluster struct {
	// UID is that of the namespace kube-system, which lives as long as its cluster.
	UID    string `json:"uid,omitempty"`
	Server string `json:"server"` // its address
}

func (c Cluster) same(o Cluster) bool {
	if c.UID != "" && o.UID != "" {
		return c.UID == o.UID
	}
	return c.Server == o.Server
}

// refined is c with what only o knows.
func (c Cluster) refined(o Cluster) Cluster {
	return Cluster{UID: cmp.Or(o.UID, c.UID), Server: o.Server}
}

func (c Cluster) String() string {
	if c.UID == "" {
		return c.Server
	}
	return fmt.Sprintf("%s (%s)", c.Server, c.UID)
}

func (i Identity) matches(o Identity) bool {
	same := i.Cluster.same(o.Cluster)
	i.Cluster, o.Cluster = Cluster{}, Cluster{}
	return same && i == o
}

// String is the identity in words: "pods with labels app=a in namespace b of
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
