package keepwatch

// UID is the identity of an object through its life: delete and create a name
// again, and the UID differs.
type UID string

// Object is one state of one object. Each side fills it as it likes: decoded
// Go values in an informer, encoded bytes with extracted metadata in a stream.
//
// An Object is a pointer, so that == tells whether two are one, and immutable from
// the moment it is handed on. Every method is cheap, has no side effects, and may
// be called from any goroutine.
type Object interface {
	Key() Key
	UID() UID
	// Revision is the revision that wrote this state (metadata.resourceVersion).
	Revision() Revision
}
