// Package listwatch makes a keepwatch.Source of any client-go ListerWatcher: of a
// generated client, a dynamic or metadata client, or a fake of one.
//
// # Who numbers
//
// A Kubernetes API gives every object a UID, and every state a resourceVersion,
// which is one order over all of the resource. Then these are the revisions, and
// whatever breaks the order is a ProtocolViolation.
//
// The fakes that unit tests use give no resourceVersions, or the same to every
// object, or no UIDs. So do some aggregated APIs. Then the source numbers itself
// what it delivers, in the order in which it comes (see ledger), and takes the
// server's resourceVersions for what they are to a client that can't compare
// them: opaque words, to be sent back.
//
// Which of the two it is, is decided by the first list that has objects in it, or
// by the first event where the list was empty. A client that declares that it
// does not support streaming lists, as client-go's fakes do, is a fake. A server
// that has numbered once is held to it, and only a list can say otherwise.
package listwatch
