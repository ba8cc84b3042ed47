// Package powerloss tests that what was stored survives a loss of power: on a file system that forgets what was not
// synced.
//
//	disk.go   the file system, over FUSE: what is written, and what is durable
//	node.go   its requests
package powerloss
