package write

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Verdict is what an answer to a PATCH means. The set is closed.
type Verdict uint8

const (
	// Taken: it is written.
	Accepted Verdict = iota + 1
	// Gone: the object is not there any more, and nothing is left to be written on it.
	Gone
	// Stale: the patch was made for another state of the object. It is kept, and made
	// again for a newer one.
	Stale
	// Later: the server could not take it now. It is kept, and sent again.
	Retry
	// Rejected: the server does not accept it. A person must be notified.
	Rejected
)

// answers has the verdicts on what a server answers; the first row that fits counts.
var answers = []struct {
	code    int
	kind    types.PatchType // "" for any
	verdict Verdict
}{
	{http.StatusNotFound, "", Gone},
	{http.StatusGone, "", Gone},
	{http.StatusConflict, "", Stale},
	{http.StatusUnprocessableEntity, types.JSONPatchType, Stale},
	{http.StatusUnprocessableEntity, "", Rejected},
	{http.StatusUnauthorized, "", Retry},
	{http.StatusTooManyRequests, "", Retry},
	{http.StatusRequestTimeout, "", Retry},
}

// Judge says what the answer to a PATCH means, and how long the server has asked to
// wait. What is no answer at all, and what the server blames itself for, may be
// better later; what it blames us for will not.
func Judge(kind types.PatchType, err error) (Verdict, time.Duration) {
	if err == nil {
		return Accepted, 0
	}
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		return Retry, 0
	}
	var wait time.Duration
	if seconds, asked := apierrors.SuggestsClientDelay(err); asked {
		wait = time.Duration(seconds) * time.Second
	}
	code := int(status.Status().Code)
	if details := status.Status().Details; details != nil && slices.ContainsFunc(details.Causes, isOtherUID) {
		return Gone, 0
	}
	for _, row := range answers {
		if row.code == code && (row.kind == "" || row.kind == kind) {
			return row.verdict, wait
		}
	}
	if code >= 400 && code < 500 {
		return Rejected, wait
	}
	return Retry, wait
}

// Complaint names what a server does not take: the code, the reason, and the fields that are
// at fault. Answers that differ in their words alone have the same.
func Rejection(err error) string {
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		return err.Error()
	}
	s := status.Status()
	var faults []string
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			faults = append(faults, fmt.Sprintf("%s %s", c.Type, c.Field))
		}
	}
	slices.Sort(faults)
	return fmt.Sprintf("%d %s %q", s.Code, s.Reason, slices.Compact(faults))
}

// otherLife reports whether an object was not taken because another one has its
// name by now: a patch says which UID it is for.
func isOtherUID(c metav1.StatusCause) bool { return c.Field == "metadata.uid" }
