// Package embeddedetcd runs one etcd member inside the process, on the "etcd" folder of a data
// folder. Clients reach it over a Unix socket that only the process's user can open, and over
// nothing else.
//
// Check reads etcd's files before etcd opens them, because etcd starts empty on some damaged data,
// and clears a damaged log behind the first record that it cannot read. Start runs the member.
// MonitorSpace frees space in its database.
//
//	server.go   starts and stops the member
//	check.go    checks etcd's database before the start, read-only
//	wal.go      checks etcd's write-ahead log before the start, read-only
//	log.go      turns etcd's fatal log messages into an error
//	space.go    compacts, defragments and disarms the NOSPACE alarm
package embeddedetcd
