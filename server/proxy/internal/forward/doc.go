// Package forward sends to the API server what memory does not answer: with the callers' own credentials, with the
// proxy's if they have the proxy's token, and in the name of a user whose certificate the proxy has authenticated.
//
// A response costs little memory until its client reads it, and is cut off if the client reads nothing of it.
//
// A forwarded watch that memory could not answer ends when memory can continue it: behind a whole event, at whose
// revision the client connects again.
//
// # Files
//
//	forwarder.go    with whose credentials      unread.go    responses that clients do not read
//	sender.go       requests as they are        takeover.go  ends watches, to continue them
//	impersonate.go  in somebody's name          frames.go    which revision a watch has delivered
//	inflight.go     how many of a user          repeat.go    requests that can be sent once more
package forward
