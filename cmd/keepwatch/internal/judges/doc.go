// Package judges is the commands that judge: operators, servers, clients and caches.
//
//	judge.go    keepwatch judge
//	conform.go  keepwatch conform
//	faults.go   keepwatch faults
//	audit.go    keepwatch audit
package judges
