package keepwatch

import (
	"fmt"
	"strconv"
)

// Revision is a point in a source's history: etcd's revision, a Kubernetes
// resourceVersion. Zero means none. Revisions of one resource of one cluster
// are totally ordered (KEP-5504 allows clients to compare resourceVersions);
// revisions of different epochs (see [Rewound]) are not comparable.
type Revision uint64

// ParseRevision parses a resourceVersion: a decimal number without sign or
// leading zeros, greater than zero. Anything else breaks the API's contract
// (KEP-5504) and must not move a cursor.
func ParseRevision(s string) (Revision, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 || s[0] == '0' || s[0] == '+' {
		return 0, fmt.Errorf("resource version %q is not a positive decimal number", s)
	}
	return Revision(n), nil
}

// String returns the resourceVersion, in decimal.
func (r Revision) String() string { return strconv.FormatUint(uint64(r), 10) }
