// Package readahead buffers a watch between the goroutine that reads its stream and
// the consumer of its batches. While the consumer works on one batch, the goroutine
// decodes the next one.
//
// A source's watch embeds a [Buffer]. One goroutine of the watch calls [Buffer.Fill],
// which puts what the stream sends. The consumer calls [Buffer.Next], which returns
// everything that was put since the last call. The buffer has room for one batch. If
// the batch is full, Put waits, and the connection exerts back pressure.
//
// The first call of [Buffer.End] decides how the watch ends. The consumer receives
// what was put before, then that failure, again on each call.
//
//	buffer.go  Buffer: Put, Next, End, and the bound
//	part.go    Part: which parts join a batch
package readahead
