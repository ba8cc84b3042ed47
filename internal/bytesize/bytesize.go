// Package bytesize has numbers of bytes that people write as Kubernetes' quantities, such as 256Mi.
package bytesize

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Size is a number of bytes. It is a pflag.Value; 0 is no value.
type Size int64

// String returns the value in the form of the flag; empty for none.
func (s *Size) String() string {
	if *s == 0 {
		return ""
	}
	return resource.NewQuantity(int64(*s), resource.BinarySI).String()
}

// Type returns the name of the value in the help.
func (*Size) Type() string { return "size" }

// Set parses the flag.
func (s *Size) Set(text string) error {
	size, err := Parse(text)
	*s = Size(size)
	return err
}

// Parse returns the bytes of a quantity, a whole number above zero: 512m is a quantity as well, of half a byte, which
// rounds up to one.
func Parse(text string) (int64, error) {
	size, err := resource.ParseQuantity(text)
	switch {
	case err != nil || size.Sign() <= 0:
		return 0, fmt.Errorf("%q is not a size above zero, such as 512Mi or 2Gi", text)
	case size.CmpInt64(size.Value()) != 0:
		return 0, fmt.Errorf("%q is not a whole number of bytes: give for example 512Mi; m is a thousandth", text)
	}
	return size.Value(), nil
}
