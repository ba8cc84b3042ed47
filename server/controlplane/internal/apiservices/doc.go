// Package apiservices registers the groups and versions of a server as local APIServices, as kube-apiserver does: those
// of built-in kinds once, at the start, and those of CustomResourceDefinitions as they come and go. Priorities, labels
// and the rules for objects that users change are kube-apiserver's.
//
//	registrar.go   Registrar: creates, restores and deletes
//	priorities.go  the priorities of groups and versions
package apiservices
