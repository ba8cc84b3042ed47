// Package history is keepwatch history: it looks back in the database that keepwatch sync writes.
//
//	history.go      the command, its database and its flags
//	log.go          keepwatch history log
//	diff.go         keepwatch history diff
//	blame.go        keepwatch history blame
//	events.go       keepwatch history events
//	restore.go      keepwatch history restore: the flags, what is selected, the report
//	restoration.go  what is written to the cluster, and in which order
//	context.go      keepwatch history context
//	kubeconfig.go   the kubeconfig of moments, which serve --history writes
package history
