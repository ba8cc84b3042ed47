package keepwatch

// UID identifies an object from its creation to its deletion. An object that is created
// again under the same name has another UID.
type UID string

// Object is one state of one object. Each source has its own implementation: decoded Go
// values for an informer, encoded bytes with their metadata for a stream.
//
// An Object is a pointer, so that == compares identity, and immutable once it was
// returned or delivered. Every method is cheap, has no side effects, and may be called
// from any goroutine.
type Object interface {
	Key() Key
	UID() UID
	// Revision is the revision that wrote this state (metadata.resourceVersion).
	Revision() Revision
}
