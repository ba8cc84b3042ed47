// Package store keeps one resource's versioned state: the current objects, the recent
// history, and the deletions.
//
// The state is an immutable tree. The one writer builds the next tree by copying the path
// to each change, and publishes it together with the history as one view. Readers load the
// view and never lock. The history has three parts, each reaching further back with less
// detail:
//
//	window      every change of the last minutes with its prior state
//	tombstones  every deletion of a far longer time
//	tree        the revisions at which each object was created and last stored
//
// A [Watcher] is a cursor into the history. Within the window it receives every change;
// behind the window it receives the difference, computed from tombstones and tree; behind
// the tombstones it fails with Expired.
//
//	store.go         the writer's methods: Apply, Replace, Invalidate; how a view is published
//	txn.go           the next state while it is built, from a batch or from a list
//	validate.go      the checks that every batch and change must pass
//	replacement.go   a list, and its difference to the current state
//	options.go       what is retained
//	filter.go        the view of a consumer
//	watcher.go       a cursor and a filter; batches, gaps and bookmarks
//	notifier.go      waking the watchers that a change concerns
//	term.go          the same by an attribute of its object
//	window.go        the recent history
//	tombstone.go     the deletions behind it
//	attributelog.go  the prior states behind it, as far as selectors need them
//	difference.go    the difference since a revision behind the window
//	selection.go     the same for a filter by content
//	at.go, since.go  the state at a revision; the changes since a snapshot
//	past.go          the states at revisions that were asked for last
//	records.go       the state without contents, for the first list of the next process
//	snapshot.go      the state at one revision, and reading it
//	segment.go       a run of its objects; memo.go caches what is derived from one
//	index.go         keys by value
//	tree.go, keys.go, editor.go, diff.go  the tree, its search, path copying, differences
//	queue.go         the bounded queue under window, tombstones and attribute log
//	digest.go        an incremental hash of the state
package store
