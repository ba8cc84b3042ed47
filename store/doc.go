// Package store remembers one resource's state: what is, what has happened of
// late, and what was deleted.
//
// The state is an immutable tree. The one writer makes the next tree by copying
// the path to what changes, and publishes it together with the history as one
// view; readers load the view and never lock. History is kept in three forms,
// each reaching further back and knowing less:
//
//	window      every change of the last minutes, exactly as it came, with the state before it
//	tombstones  every deletion of a far longer time
//	tree        for each object since when it is there, and since when as it is
//
// A [Watcher] is a cursor into that: within the window it replays, behind the
// window it is told the difference, computed from tombstones and tree, and where
// even the tombstones end it is told so.
package store
