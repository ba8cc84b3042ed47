// Package apitypes stores the objects of several types of a Kubernetes cluster in one sink, and every change of them:
// it is what keepwatch sync runs. Types are named, or are all types of an API group, or of all groups. Those of a group
// join when the server shows them, and leave when it has them no more: what was delivered of them is then delivered as
// deleted.
//
// A [Transfer] finds the resources' lines of revisions, so that one cut describes all types that one etcd stores, and
// hands them to package stream/transfer, which has the reflectors and the sink.
//
//	transfer.go    Options, Transfer, Run: the resources and their lines of revisions
//	resource.go    Resource, Selection, Pattern
//	members.go     types that join and leave
//	type.go        the types that the server shows
//	definition.go  what is known of a type's definition
//	source.go      the source of a type whose version may change
package apitypes
