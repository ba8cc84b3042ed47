// Package files writes the messages of streams as lines of JSON into files of a directory, which are rotated by size
// and age.
//
//	DIR/manifest.json             which files there are, and how many bytes of each are complete
//	DIR/0000000001.ndjson.zst     closed files, compressed
//	DIR/0000000002.ndjson         the current one, as plain text
//
// # Durability
//
// Write appends the lines of a batch to the current file, syncs it, and then replaces the manifest. A reader that reads
// the files of the manifest in order, each up to its number of bytes, sees whole batches only, at any time and after
// any crash, also of the machine. What a crash has left behind those bytes is cut off at the next Open and written
// again.
//
// A file is closed when it is large or old enough. With a compression it is then compressed, the manifest names
// the compressed file in place of the plain one, and the plain one is deleted: a reader that does not find a file reads
// the manifest again. Closed files may be deleted; the manifest forgets them when the next file is closed.
//
//	files.go     the receiver: Open, Write, Close
//	manifest.go  the manifest
//	rotate.go    closing and compressing a file
//	failure.go   which errors are worth another attempt
package files
