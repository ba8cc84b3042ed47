// Package nats stores streams in NATS JetStream: all changes as messages of a stream, or the
// current objects in a key-value bucket. docs/sync-messages.md describes subjects and messages.
//
// # Exactly once without transactions
//
// JetStream has no transactions over several streams. Messages are published in atomic batches of up to 1,000. Each batch has the
// sequence that the stream's last message must have. The stream thus has the first messages of a piece without a hole, although
// another process publishes or a connection breaks. The last message of a piece has the cursor in a header.
//
// The delivered objects are in a bucket beside the stream: each has the message of its newest state, without
// body, and the cursors have the sequence in the stream up to which the bucket is complete. The
// bucket is written after the stream. Open reads the bucket, and then what the stream has more. Where a crash has cut a piece in
// two, its first part counts: it is in the index, and events of it that the source repeats are recognized.
// Those of deleted objects are recognized by the markers in the bucket, which are there for a day: after the deletion if the bucket is the sink,
// else after the start that has completed the bucket.
// None of that needs JetStream's own deduplication, and the messages take no part in it.
//
// A process claims the sink by a message in the bucket, before it reads. From then on no other one can write to the bucket, but
// it may leave a last piece in the stream. It ends when it opens the sink again.
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
