package watchcache

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch"
)

// Event is what a watch delivers: a state of an object, or the revision that the watch has
// reached.
type Event struct {
	// Type is Added, Modified, Deleted or Bookmark.
	Type watch.EventType
	// Object is the state, for Deleted the last one; nil for a bookmark.
	Object *Object
	// Revision is the event's, which the object is sent with: for Deleted the revision of the
	// deletion, or an earlier one from which a client that resumes receives what else that revision has.
	Revision keepwatch.Revision
	// InitialEnd marks the bookmark after the initial events.
	InitialEnd bool
}

// DecodeError returns the error that ends a watch at an event of the given type whose object can't
// be decoded because of err. Clients list again after the one for a deletion, and so notice it
// (KEP-3926).
func DecodeError(event watch.EventType, err error) error {
	if event != watch.Deleted {
		return err
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInternalServerError,
		Reason:  metav1.StatusReasonStoreReadError,
		Message: "saw a DELETED event, but object data is corrupt - " + err.Error(),
	}}
}
