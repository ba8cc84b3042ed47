// Package history reads the past of a cluster from a database that keepwatch sync has written: every state of every
// object, with the revisions and times between which it was valid.
//
//	sync ─▶ SQLite, Postgres ─▶ Database ─▶ History ─┬─▶ View: types, moments, states, events
//	                                                 └─▶ Source: a resource at a moment, and onward
//
// It only reads, also while a sync writes. For a moment in a declared gap, before the first list or after the last
// transaction, it returns an [Unknown], which names the nearest known moments.
//
// # Moments
//
// A [Moment] is a time, a revision, or the newest known state. Types whose objects are in one etcd share its
// revisions, and are read at one revision: for a time that is the greatest one that was stored until then. Types of
// another etcd are read at the time of the moment. A revision belongs to the newest epoch, since the source was
// restored last. The newest state of several types is the newest one that all of them have reached which are followed.
//
// # Limits
//
// A state that a list revealed at the revision of the state before, because a CustomResourceDefinition has changed,
// is shown for the whole time of that revision. Times are those of the transactions, which follow the changes by some
// milliseconds, and by more after an outage.
//
// # Files
//
//	history.go  History, View       moment.go  what a moment is, as text
//	types.go    types and names     known.go   which points are known
//	events.go   what has happened   points.go  the points of a moment
//	source.go   a resource at a moment and onward, as a keepwatch.Source
//	replay.go   a watch of it
//	difference.go  a resource at a moment, also as what differs from another one
//	clock.go    times that are not known since the clock was ahead
//	latest.go   whether there is more, for all replays at once
//	reported.go  what Events of Kubernetes say about an object
//	ended.go     whether they have expired or were deleted
//	beside.go    the state of an object when an Event about it was written
//	timeline.go  what has happened to objects between two moments, without their contents
//	revision.go  the last state of a deleted object
package history
