package kube

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

// Raw is one state of one object in the server's encoding, the argument of
// [Options].Decode.
type Raw struct {
	Key      keepwatch.Key
	UID      keepwatch.UID
	Revision keepwatch.Revision
	// Kind is the object's type, as far as the object has it, or the part of the list that
	// precedes the object.
	Kind     schema.GroupVersionKind
	Encoding Encoding
	// Body is the object: a JSON object, compact at least down to the members of metadata;
	// or a protobuf message without an envelope. It is valid until Decode returns.
	Body []byte
}
