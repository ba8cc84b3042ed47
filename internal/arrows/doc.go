// Package arrows holds the test that keeps the import arrows of ARCHITECTURE.md
// pointing one way.
package arrows
