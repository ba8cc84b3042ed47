package storage

// Size returns how many bytes etcd keeps of the object.
func (o *Object) Size() int { return o.size }

// Attached returns what Attach has kept with the object, nil for nothing.
func (o *Object) Attached() any {
	if kept := o.attached.Load(); kept != nil {
		return *kept
	}
	return nil
}

// Attach keeps v with the object, for as long as the object is reachable, and returns v. If
// something is attached already, Attach returns that. The one attachment of an object belongs to
// the package that serves its encodings. An object without one pays for a nil pointer.
func (o *Object) Attach(v any) any {
	if o.attached.CompareAndSwap(nil, &v) {
		return v
	}
	return *o.attached.Load()
}
