// Package cycle decides what an operator does about one state of one object. It is
// a pure function: the state as it was seen and the time are inputs; what to call,
// to write and to wait for are the answer. What is remembered between two cycles is
// written on the object itself, so that a restart changes nothing.
//
// # The causes
//
// In this order, the first that is true:
//
//	gone     the object is not there any more
//	free     it is being deleted, and does not wait for us
//	delete   it is being deleted, and waits for us
//	create   it was never handled
//	resume   it was handled before, and the first list of this process shows it
//	noop     its essence is what was handled last
//	update   its essence differs from that
//
// An essence is what a person would change: everything but the identity, the status
// and the system's metadata; of the annotations those that no operator keeps for
// itself. Resume handlers also join an update that the first list brings.
//
// # Nothing is lost in between
//
// The handlers of a cause run one at a time, and may have to be repeated for hours.
// Meanwhile the object can change, and a handler that has succeeded will not run
// again for this cause. So what is recorded as handled at the end is the essence
// that the first of them has seen, not the last: the difference between the two is
// then an update of its own, and every handler gets to see it.
package cycle
