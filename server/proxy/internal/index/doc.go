// Package index stores on disk what a proxy has followed, without its contents: of each object and each deletion the
// key, the UID, the revisions at which the cache received it, and a hash of the text. With it a cache that begins anew
// can deliver to its watchers what has changed since.
//
//	start  Load ─▶ Take, for each cache          later  Record ─▶ File, once a second
//
// An [Index] belongs to a cluster: the records of another one are dropped. It never has Secrets.
//
// # Files
//
//	index.go  the records of resources    file.go  a bbolt file with them
package index
