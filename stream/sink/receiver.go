package sink

import "context"

// Receiver takes the messages of several streams at least once, and stores neither positions nor an index:
// a broker, an HTTP server, files. Package statedir makes a [Sink] of it, with both in a directory. One
// goroutine calls the methods. After an error of Write, and after Close, a receiver must be opened anew.
type Receiver interface {
	// Open connects, and shuts out other writers if it can. It returns an [Unavailable] if another attempt may
	// succeed, and another error for a receiver that cannot have received what was delivered to it.
	Open(ctx context.Context, streams []Stream, delivered Delivered) error
	// Write returns nil after the receiver has made all messages of the batch durable, those of each piece in
	// their order. After an error the receiver may have any part of the batch, and receives it again with
	// the same ids after the next Open. A batch without messages reports progress only.
	Write(ctx context.Context, batch Batch) error
	// Close ends the connection. It may be called more than once, also after a failed Open.
	Close() error
	// String names the receiver, without credentials: "files:/var/lib/pods". A state directory belongs to the
	// receiver of one name.
	String() string
}

// Delivered is what the streams have delivered to a receiver.
type Delivered struct {
	// State identifies the state directory, which may be a new one.
	State string
	// Progress is that of each stream in the order of Open, zero for one that was not delivered before. It is
	// what was committed: after a crash the receiver may have later messages, which come again.
	Progress []Progress
	// Objects is the number of objects of all streams. It is not zero after a part of a first list.
	Objects uint64
}
