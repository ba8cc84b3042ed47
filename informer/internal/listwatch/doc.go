// Package listwatch makes a keepwatch.Source of any client-go ListerWatcher: of a generated
// client, a dynamic or metadata client, or a fake of one.
//
// # Revisions
//
// A Kubernetes API gives every object a UID, and every state a resourceVersion. The
// resourceVersions of a resource are one order. The source uses them as revisions, and reports
// a ProtocolViolation if an event or a list contradicts the order.
//
// The fakes of unit tests give no resourceVersions, or the same to every object, or no UIDs.
// Some aggregated APIs do so, too. Then the source assigns revisions to lists and events in the
// order of arrival (see versionAssigner), and uses the server's resourceVersions as opaque
// tokens only: it sends them back.
//
// The first list that has objects decides between the two, or the first event if the list was
// empty. A client that declares that it does not support streaming lists, as client-go's fakes
// do, has no revisions. A server that has shown revisions once must have them in every later
// event; only a list can change the decision.
//
// # Files
//
//	source.go            the options of a source, calls with a time limit
//	list.go, listat.go   lists; the state at exactly one revision
//	streaminglist.go     streaming lists
//	watch.go, event.go   watches; parsed events
//	versions.go          revisions for a server that has none
package listwatch
