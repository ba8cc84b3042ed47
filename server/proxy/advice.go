package proxy

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// advice is how a client could be answered at less cost, in a read that memory answers. The set is closed.
type advice string

const (
	adviceNewest advice = "newest" // a list of the newest state, for whose revision the server is asked
	adviceJSON   advice = "json"   // JSON of a resource that others read as protobuf: it is in memory twice
)

// advised says for people what a client can do.
var advised = map[advice]string{
	adviceNewest: "lists of the newest state: in a loop, watch, or ask for resourceVersion=0",
	adviceJSON:   "JSON of what others read as protobuf, so that it is in memory twice: accept protobuf, too",
}

// advice returns how a read could be answered at less cost.
func (p *Proxy) advice(q *http.Request, info *request.RequestInfo, from *follower) (all []advice) {
	if info.Verb == "list" && isConsistentRead(q, info) {
		all = append(all, adviceNewest)
	}
	if !from.format.Encoding.Protobuf() && p.caches.hasProtobuf(info) {
		all = append(all, adviceJSON)
	}
	return all
}

// hasProtobuf reports whether a resource is followed as protobuf.
func (c *caches) hasProtobuf(info *request.RequestInfo) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.all[resourceOf(info)]; e != nil {
		for as := range e.followers {
			if as.Encoding.Protobuf() {
				return true
			}
		}
	}
	return false
}
