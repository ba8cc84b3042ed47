package controlplane

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// ViolateInvariant makes the next change of a resource violate an invariant of its watch cache, which
// no request can: history without a list.
func (s *Server) ViolateInvariant(resource schema.GroupVersionResource) error {
	reader := s.readers.builtin[resource]
	if reader == nil {
		reader = s.readers.custom.Lookup(resource)
	}
	field := reflect.ValueOf(reader.Cache()).Elem().FieldByName("store")
	return (*store.Store)(field.UnsafePointer()).Invalidate(context.Background(), keepwatch.GapRewind)
}
