// Package paging detects lists that make no progress: servers that send the same page again
// and again.
package paging
