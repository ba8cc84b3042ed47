package testserver

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Request is a request that the server received.
type Request struct {
	// Verb is get, list, watch, create, update, patch, delete or deletecollection. For a path that is not a resource's,
	// it is the method in lower case.
	Verb string
	// Group, Version, Resource, Subresource, Namespace and Name are empty where the request has none.
	Group, Version, Resource, Subresource, Namespace, Name string
	// Path is the path, and Query the parameters, as they were sent.
	Path, Query string
	// User is empty if authentication has refused the request, with 401.
	User      string
	UserAgent string
	// Status is the HTTP status of the answer. It is zero while there is none: for a request in progress.
	Status int
	// Begun is when the request was received.
	Begun time.Time
}

// Match selects requests. A nil Match selects all. It is called for each request, by several goroutines at a time, and
// may call the server's methods.
type Match func(Request) bool

func (m Match) selects(r Request) bool { return m == nil || m(r) }

// Verb matches requests of a verb on a resource, like "update", "pods"; with a subresource, "pods/status". An empty
// verb or resource matches any. A resource without a subresource does not match one with it.
func Verb(verb, resource string) Match {
	return func(r Request) bool {
		name := r.Resource
		if r.Subresource != "" {
			name += "/" + r.Subresource
		}
		return (verb == "" || verb == r.Verb) && (resource == "" || resource == name)
	}
}

// By matches the requests of a user that match m.
func By(name string, m Match) Match {
	return func(r Request) bool { return r.User == name && m.selects(r) }
}

// requestOf describes a request. It reports false for one of the server's own clients.
func requestOf(r *http.Request) (Request, bool) {
	described := Request{Path: r.URL.Path, Query: r.URL.RawQuery, UserAgent: r.UserAgent(), Begun: time.Now()}
	if by, ok := request.UserFrom(r.Context()); ok {
		described.User = by.GetName()
	}
	if info, ok := request.RequestInfoFrom(r.Context()); ok {
		described.Verb = info.Verb
		described.Group, described.Version, described.Resource = info.APIGroup, info.APIVersion, info.Resource
		described.Subresource, described.Namespace, described.Name = info.Subresource, info.Namespace, info.Name
	}
	return described, described.User != user.APIServerUser
}

// maxRequests is the number of requests that the log keeps: the newest.
const maxRequests = 100_000

// requestLog has the newest requests, oldest first.
type requestLog struct {
	mu       sync.Mutex
	requests []*Request
}

// add adds a request, whose answer the returned function records.
func (l *requestLog) add(r Request) (answered func(status int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.requests) >= maxRequests {
		l.requests = append([]*Request(nil), l.requests[maxRequests/2:]...)
	}
	l.requests = append(l.requests, &r)
	return func(status int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		r.Status = status
	}
}

func (l *requestLog) matching(m Match) []Request {
	l.mu.Lock()
	all := make([]Request, len(l.requests))
	for i, r := range l.requests {
		all[i] = *r
	}
	l.mu.Unlock()
	return slices.DeleteFunc(all, func(r Request) bool { return !m.selects(r) })
}

// Requests returns the requests that the server received since its start or fork and that match, the oldest first;
// nil matches all. A request that authentication or authorization refuses is in it with its answer, 401 or 403; no
// fault applies to it. Those of the server's own clients are not in it, and of very many only the newest 50,000 at
// least.
func (s *Server) Requests(m Match) []Request { return s.faults.log.matching(m) }
