package operator

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/operator/internal/write"
)

// statusEndpoint is whether the status of objects has an endpoint of its own. A definition that changes while the
// operator runs can add or remove it.
type statusEndpoint struct {
	mu     sync.Mutex
	own    bool
	looked time.Time // when discovery was asked last
}

// statusLookEvery is the least time between two requests of discovery: the object is gone most often, or the schema
// does not know a field.
const statusLookEvery = 10 * time.Second

func (s *statusEndpoint) get() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own
}

// statusMoved asks the server whether the status has an endpoint of its own, if the answer to a part of a write
// suggests that this has changed: the endpoint does not exist, or the object's endpoint ignores the status. It reports
// whether it has. answer is nil after an error.
func (e *engine) statusMoved(o *object, part write.Part, out write.Outgoing, on *write.Object, v write.Verdict,
	answer *unstructured.Unstructured) bool {
	switch {
	case on.Subresource && part == write.StatusPart && v == write.Missing:
	case !on.Subresource && part == write.MergePart && v == write.Accepted && out.StatusIgnored(answer.Object):
	default:
		return false
	}
	had := on.Subresource
	on.Subresource = e.hasStatus(o, had)
	return on.Subresource != had
}

// hasStatus returns whether the status has an endpoint of its own, as far as the server says.
func (e *engine) hasStatus(o *object, had bool) bool {
	s := &e.status
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own != had || time.Since(s.looked) < statusLookEvery {
		return s.own
	}
	ctx, cancel := e.request(o)
	defer cancel()
	s.looked = time.Now()
	if own, err := e.api.hasStatus(ctx); err == nil {
		s.own = own
	}
	return s.own
}
