// Package nats stores streams in NATS JetStream: all changes as messages of a stream, or the
// current objects in a key-value bucket. docs/sync-messages.md describes subjects and messages.
//
// # Exactly once without transactions
//
// JetStream has no transactions over several streams. The sink publishes messages in atomic batches of up to 1,000.
// Each batch names the sequence that the stream's last message must have. So the stream has the first messages of a
// piece without a hole, even if another process publishes or a connection breaks. The last message of a piece has the
// cursor in a header.
//
// A bucket beside the stream has the delivered objects: for each the message of its newest state, without body. Its
// cursors have the sequence in the stream up to which the bucket is complete. The sink writes the bucket after the
// stream. Open reads the bucket, and then the newer messages of the stream.
//
// A crash can cut a piece in two. Its first part is in the stream, and Open adds it to the index. When the source
// repeats events of that part, the sink drops them: it compares them with the index. The index does not have deleted
// objects. For them the bucket has markers, which stay for a day: after the deletion if the bucket is the sink, and
// otherwise after the start that completed the bucket. JetStream's own deduplication is not used.
//
// A process claims the sink by a message in the bucket, before it reads. After that, no other process can write to the
// bucket. A process that was replaced may leave a last piece in the stream; it ends when it opens the sink again.
//
// With a bucket as the sink, the bucket is both: its messages have bodies.
//
//	nats.go      Open, Write, Close
//	address.go   what the address says
//	journal.go   a stream with one writer: publishing, reading
//	configure.go the streams, made or checked
//	header.go    what messages say about themselves
//	fold.go      what the messages of bucket and stream add up to
//	messages.go  the messages of a piece
//	token.go     names as parts of subjects and keys
//	errors.go    which errors are worth another attempt
//	status.go    the status, while another process may write
package nats
