package object

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/internal/intern"
)

// interner returns one value for equal texts. It belongs to one goroutine.
type interner struct {
	strings *intern.Table[any] // strings, in the interface value that untyped objects contain
	fields  *intern.Table[any] // field sets of managers; nil if objects must share no mutable memory
}

const (
	maxStrings        = 1 << 14
	maxStringsCompact = 1 << 9   // few decoded values share them
	maxStringLength   = 128      // bytes; longer strings rarely repeat
	maxFieldSets      = 1 << 8   // workloads times managers
	maxFieldSetLength = 16 << 10 // bytes
)

func newInterner(options Options) *interner {
	in := &interner{}
	if options.Compact {
		in.strings = intern.New[any](maxStringsCompact, maxStringLength)
	} else {
		in.strings = intern.New[any](maxStrings, maxStringLength)
	}
	if !options.Transformed {
		in.fields = intern.New[any](maxFieldSets, maxFieldSetLength)
	}
	return in
}

func boxed(s string) any { return s }

// intern returns string(b).
func (in *interner) intern(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return in.strings.OfBytes(b, boxed).(string)
}

// fieldsV1 sets into to the set that decode makes of b. Equal sets share their memory, which nothing
// changes: an informer's objects are immutable.
func (in *interner) fieldsV1(into *metav1.FieldsV1, b []byte, decode func(*metav1.FieldsV1, []byte) error) error {
	if in.fields == nil {
		return decode(into, b)
	}
	set, ok := in.fields.OfBytes(b, func(text string) any {
		var decoded metav1.FieldsV1
		if decode(&decoded, []byte(text)) != nil {
			return nil
		}
		return decoded
	}).(metav1.FieldsV1)
	if !ok {
		return decode(into, b) // it fails again, with its error
	}
	*into = set
	return nil
}
