// Package difference compares the states of objects at two points of a history, for people: as a unified diff of YAML.
//
// # Files
//
//	difference.go  which objects differ     unified.go  the text of a difference
package difference
