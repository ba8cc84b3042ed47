// Package columns renders the built-in kinds as Tables, the responses to
// `kubectl get`, with the columns, cells and wide columns of kube-apiserver.
//
// Each resource is an entry of a table, by API group: its columns, and a function
// from the typed object to the cells. Resources without an entry show their name
// and creation time, as in kube-apiserver (LimitRanges, Roles and ClusterRoles
// among them). Package server/customcolumns renders custom resources.
//
// A cell with an age is a [readpath.Since], which is the time of the event. For
// the library it is rendered at once; the read path caches the row, and renders
// the age whenever it sends the row.
//
//	view.go        the table of resources, and declarations of columns
//	convertor.go   renders objects, lists and events by an entry of the table
//	cells.go       cells that several resources share
//	*.go           the entries of one API group, after which the file is named
package columns
