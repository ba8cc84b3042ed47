// Package arrows has the tests that check the import arrows of ARCHITECTURE.md, and the length of lines.
package arrows
