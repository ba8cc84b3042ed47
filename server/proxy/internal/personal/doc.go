// Package personal finds the namespaces in which the API server allows a user a verb on a resource, for lists and
// watches over all namespaces that the server refuses to the user.
//
//	request ─▶ Reading ─▶ View ─┬─ which namespaces can be meant?  Roles: the user's bindings
//	                            ├─ which of them?                  Reviews: the API server's decision about each
//	                            └─ which revisions are of this set? Newest
//
// A [Reading] is a watchcache.View. It has the views of both verbs, list and watch, since one continues the other. The
// server's reviews are the only authority: bindings say which namespaces to ask about, and when to ask again. If it is
// not known what they say, or if the server may decide by more than roles, it is asked about every namespace. What they
// said last counts for a minute while their changes are not seen, for views that are shown.
//
// # Decided again
//
// [Views.Touch] marks views whose users' roles or bindings have changed. A view with open watches then decides
// at once, after 0.6 seconds and then each second for six, since API servers follow the roles each by itself; one
// without decides when it is used next. A denial of what is shown counts when the server repeats it, and those for a
// view that begins while roles are not followed count if the server is ready: one that starts denies too much.
// A change does not wait for the decision that is being made, which asks about what is shown, and about where the user
// is bound, before all else, and again after each change. When namespaces come and go, it is about those alone. A
// namespace that is undecided keeps its last decision for ten seconds; then the view fails, and watches of it end,
// until all is decided again.
//
// # Revisions of a set
//
// A revision does not say which set of namespaces was shown at it: that of an object in a namespace that was granted
// is older than the grant, and another replica may notice a change later. [View.Resumable] is true for revisions that
// are higher than the newest one which the server had [Settled] after the last change of the set, or of the user's
// bindings. All that was sent at such a revision, here or by another replica, was of the present set. For a view that
// begins, it is true for the revisions from the server's newest one on, if the user's bindings have not changed in
// the [Settled] before.
//
// A service account has a view for each of its tokens, and where it moves to another replica. If roles alone decide,
// its set changes by bindings alone, whose changes of the last hour are remembered. So its view begins with the first
// revision that was marked, as every five minutes, at least five minutes after the last change: by then all replicas
// had the present set, also one whose watch of roles hung. This replica's own watch may hang now. Whatever changes
// in the next five minutes ends the watches that were continued so.
//
// # Bounds
//
// A view asks about eight namespaces at a time, and about one if others need their shares: owners have like ones. The
// server's reviews have a queue of their own, in turn by user: see package access.
//
// Beyond 10,000 views one is forgotten for each new one: one that nobody has used for a minute, or else one of the
// owner with most views. The watches of that one end. So an owner with few views keeps those that are in use: the two
// of each open watch, which both follow what changes, since the watch may be continued.
//
// # Files
//
//	reading.go  a list or a watch            roles.go    bindings by subject
//	views.go    the views of all users       reviews.go  what the server is asked
//	view.go     one of them                  askers.go   how much at a time
//	run.go      one decision about its set   shares.go   whose view is forgotten for a new one
//	epoch.go    the revisions of its set     sets.go     equal sets, once
//	metrics.go  counters                     marks.go    revisions of the last hour
package personal
