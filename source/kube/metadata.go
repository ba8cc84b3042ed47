package kube

// Metadata returns {"apiVersion", "kind", "metadata"} as JSON on one line, without
// managedFields, for example for the tombstone of a deleted object. Each call copies it.
func (o *Object) Metadata() []byte {
	before := o.text[o.metadata.from:o.managed.from]
	after := o.text[o.managed.to:o.metadata.to]
	size := len(`{"apiVersion":"","kind":"","metadata":}`) + len(o.kind.apiVersion) + len(o.kind.kind) + len(before) +
		len(after)
	out := make([]byte, 0, size)
	out = appendQuoted(append(out, `{"apiVersion":`...), o.kind.apiVersion)
	out = appendQuoted(append(out, `,"kind":`...), o.kind.kind)
	out = append(append(append(out, `,"metadata":`...), before...), after...)
	return append(out, '}')
}
