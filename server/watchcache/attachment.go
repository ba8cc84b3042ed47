package watchcache

// Attached returns what Attach has stored with the object, or nil.
func (o *Object) Attached() any {
	if v := o.attached.Load(); v != nil {
		return *v
	}
	return nil
}

// Attach stores v with the object, for as long as the object is reachable, and returns v. If
// something is attached already, Attach stores nothing and returns that. An object has one
// attachment, for the package that serves its encodings. Without one it costs a nil pointer.
func (o *Object) Attach(v any) any {
	if o.attached.CompareAndSwap(nil, &v) {
		return v
	}
	return *o.attached.Load()
}
