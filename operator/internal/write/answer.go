package write

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Verdict is the meaning of an answer to a PATCH. The set is closed.
type Verdict uint8

const (
	// Accepted: the patch is written.
	Accepted Verdict = iota + 1
	// Gone: another object has the name, so that the object does not exist any more.
	Gone
	// Missing: the server says that there is no such object, or no such path. It is no proof: a load balancer, a server
	// that starts, and a resource without the subresource say so, too. The source delivers the deletion, or the patch
	// is sent again.
	Missing
	// Stale: the patch was computed for another state of the object. It is computed again
	// for a newer one.
	Stale
	// Retry: the server cannot accept the patch now. It is sent again.
	Retry
	// Rejected: the server does not accept the patch. Users are notified.
	Rejected
)

// answers are the verdicts by status code. The first row that matches counts.
var answers = []struct {
	code    int
	kind    types.PatchType // "" for any
	verdict Verdict
}{
	{http.StatusNotFound, "", Missing},
	{http.StatusGone, "", Missing},
	{http.StatusConflict, "", Stale},
	{http.StatusUnprocessableEntity, types.JSONPatchType, Stale},
	{http.StatusUnprocessableEntity, "", Rejected},
	{http.StatusUnauthorized, "", Retry},
	{http.StatusTooManyRequests, "", Retry},
	{http.StatusRequestTimeout, "", Retry},
}

// Judge returns the verdict on the answer to a PATCH, and the server's Retry-After. A
// missing answer and a 5xx can be tried again, unless etcd refuses the object's size; a 4xx outside of the table
// cannot.
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
	if isTooLarge(status.Status().Message) {
		return Rejected, 0
	}
	if details := status.Status().Details; details != nil && slices.ContainsFunc(details.Causes, isOtherUID) {
		return Gone, 0
	}
	if code == http.StatusUnprocessableEntity && isRefused(status.Status()) {
		return Rejected, 0
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

// Rejection identifies why a server rejects a patch: code, reason, and fields. Answers that
// differ only in their message have the same.
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

// isTooLarge reports whether a server's error is that of etcd, or of its client, for an object that is too large. Its
// code is 500.
func isTooLarge(message string) bool {
	return strings.Contains(message, "etcdserver: request is too large") ||
		strings.Contains(message, "trying to send message larger than max")
}

// isRefused reports whether validation or admission refused the object that a patch led to, in an answer with the code
// 422. A JSON patch that does not apply to the object has that code, too, without a cause.
func isRefused(s metav1.Status) bool {
	if strings.HasPrefix(s.Message, "admission webhook ") {
		return true
	}
	return s.Details != nil && slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type != metav1.CauseTypeUnexpectedServerResponse // a client adds it to an answer that is no Status
	})
}

// isOtherUID reports whether a patch was rejected because another object has the name: a
// patch contains the UID of its object.
func isOtherUID(c metav1.StatusCause) bool { return c.Field == "metadata.uid" }
