package watchcache

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Version is a version of objects whose Go type is internal to a server. Its functions must not
// change afterwards what they returned, but may share the memory of what they are given.
type Version struct {
	schema.GroupVersion
	// New returns an empty object in this version.
	New func() runtime.Object
	// To converts an object of the internal type to this version, without apiVersion and kind. From
	// converts it back. From(To(o)) must equal o, for an object that was stored in this version. The cache stores
	// objects in this version only if the source's bytes are in it, too.
	To, From func(runtime.Object) (runtime.Object, error)
}
