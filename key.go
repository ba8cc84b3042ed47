package keepwatch

import "strings"

// Key names an object within one resource. Namespace is empty for
// cluster-scoped resources.
type Key struct {
	Namespace string
	Name      string
}

// String returns "namespace/name", or the name alone without a namespace.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Compare orders keys as etcd orders them and as LIST returns them: by the
// bytes of "namespace/name". That is not the order of the pair (namespace,
// name): "ns-a/x" sorts before "ns/x", because '-' is less than '/'.
func (k Key) Compare(o Key) int {
	if k.Namespace == o.Namespace {
		return strings.Compare(k.Name, o.Name)
	}
	n := min(len(k.Namespace), len(o.Namespace))
	if c := strings.Compare(k.Namespace[:n], o.Namespace[:n]); c != 0 {
		return c
	}
	// One namespace is a proper prefix of the other: the shorter one continues
	// with '/', and a namespace itself never contains one.
	if len(k.Namespace) > n {
		return compareByte(k.Namespace[n], '/')
	}
	return compareByte('/', o.Namespace[n])
}

func compareByte(a, b byte) int {
	if a < b {
		return -1
	}
	return 1
}
