// Package cluster is how a command finds its cluster, by kubectl's flags, and objects in it.
//
//	connection.go  the connection to the cluster, and the words for a missing one
//	plugin.go      ends beside a credential plugin that does not
//	resource.go    the flags that select objects; resolves the resource
//	identity.go    identifies the cluster, for states on disk
//	kubeconfig.go  writes the kubeconfigs of servers in front of a cluster
package cluster
