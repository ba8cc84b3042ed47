package deletions

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Open is how long a batch that ends with the deletion of a leased object waits for others at its revision: an API
// server sends them one after the other.
const Open = 20 * time.Millisecond

// Leased reports whether the objects of a resource have leases of etcd's: of the types of an API server only Events do.
func Leased(r schema.GroupResource) bool {
	return r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}
