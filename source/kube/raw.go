package kube

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

// Raw is one state of one object as it is on its way in. See [Options].Decode.
type Raw struct {
	Key      keepwatch.Key
	UID      keepwatch.UID
	Revision keepwatch.Revision
	// Kind is what the object is, as far as it or what was read of its list so far
	// says so.
	Kind     schema.GroupVersionKind
	Encoding Encoding
	// Body is the object: a JSON object, compact at least down to the members of
	// metadata; or a protobuf message, without an envelope. It is lent until Decode
	// returns.
	Body []byte
}
