package watchcache

// Attached returns what Attach has stored with the object, or nil.
func (o *Object) Attached() any {
	if v := o.attached.Load(); v != nil {
		return *v
	}
	return nil
}

// Attach stores v with the object, for as long as the object is reachable, and returns v. If
// something is attached already, Attach returns that. The one attachment of an object belongs to
// the package that serves its encodings. An object without one pays for a nil pointer.
func (o *Object) Attach(v any) any {
	if o.attached.CompareAndSwap(nil, &v) {
		return v
	}
	return *o.attached.Load()
}
