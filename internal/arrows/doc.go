// Package arrows has the test that checks the import arrows of ARCHITECTURE.md.
package arrows
