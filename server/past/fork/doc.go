// Package fork makes a moment of a history the beginning of a server: its objects with their UIDs, status and
// resourceVersions, definitions included. The server goes on from there, and the history does not see it.
//
//	source/history ─▶ At ─▶ controlplane.Memory ─▶ controlplane, testserver
//
// # Files
//
//	fork.go   At, State      types.go  KnownType
package fork
