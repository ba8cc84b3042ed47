// Package judges is the commands that judge: operators, servers, clients and caches.
//
//	judge.go              keepwatch judge
//	conform.go            keepwatch conform
//	disturbance.go        the command of its --disturb
//	disturbance_unix.go   its process group
//	disturbance_other.go  systems without process groups
//	faults.go             keepwatch faults
//	audit.go              keepwatch audit
package judges
