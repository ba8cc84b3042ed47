// Package pgtest runs a real Postgres of this machine's packages for a test: it can be killed and
// started again. Without Postgres the test is skipped.
//
//	pgtest.go        the server
//	standby.go       a server that follows another one
//	pooler.go        a PgBouncer in front of a server
//	owner_linux.go, owner_other.go   its user, and the end of its processes
package pgtest
