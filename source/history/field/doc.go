// Package field compares states of objects field by field: which fields differ, which manager has written them, and
// since when each field has its value.
//
// Managers are the names that clients give themselves in metadata.managedFields: tools, and not people. A field that
// was removed has no manager any more, and neither has a deletion.
//
// # Files
//
//	state.go     a decoded state
//	path.go      paths, and the fields of an object    manager.go  who has written a field
//	change.go    what differs between two states       blame.go    since when each field has its value
//	owned.go     what managers have written
package field
