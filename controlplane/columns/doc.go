// Package columns renders the built-in kinds as Tables, the answers behind
// `kubectl get`: the same columns, cells and wide columns as kube-apiserver
// shows, so that people and scripts find what they know.
//
// Each resource is one entry of a table, by API group: its columns, and a
// function from the typed object to the cells. Resources without an entry show
// their name and creation time, as kube-apiserver shows kinds it has no columns
// for (LimitRanges, Roles and ClusterRoles among them). Custom resources have the
// columns of their definition.
//
// A cell that tells an age is a [readpath.Since] until it is told: at once for the
// library, and whenever a row is sent for the read path, which keeps the row.
package columns
