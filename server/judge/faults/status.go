package faults

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The errors that a list or a watch meets, for Answer and Event.
var (
	Expired = apierrors.NewResourceExpired("too old resource version: 1 (2)")
	//lint:ignore SA1019 servers still answer so
	Gone            = apierrors.NewGone("too old resource version: 1 (2)")
	TooManyRequests = apierrors.NewTooManyRequests("too many requests, please try again later", 1)
	InternalError   = apierrors.NewInternalError(errors.New("a fault of the test"))
	Unavailable     = apierrors.NewServiceUnavailable("a fault of the test")
	Timeout         = apierrors.NewTimeoutError("a fault of the test", 0)
)

// tooLarge is the answer of a server that has not reached a revision.
func tooLarge(requested, current string) *apierrors.StatusError {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %s, current: %s", requested, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version"}}
	return err
}

// statuses are the statuses of plans, by their reason.
var statuses = map[string]func() *apierrors.StatusError{
	"BadRequest":   func() *apierrors.StatusError { return apierrors.NewBadRequest("a fault of the plan") },
	"Unauthorized": func() *apierrors.StatusError { return apierrors.NewUnauthorized("a fault of the plan") },
	"Forbidden": func() *apierrors.StatusError {
		return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("a fault of the plan"))
	},
	"NotFound": func() *apierrors.StatusError {
		return apierrors.NewGenericServerResponse(404, "", schema.GroupResource{}, "", "", 0, true)
	},
	"Invalid": func() *apierrors.StatusError {
		return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", nil)
	},
	"Gone":               func() *apierrors.StatusError { return Gone },
	"Expired":            func() *apierrors.StatusError { return Expired },
	"TooManyRequests":    func() *apierrors.StatusError { return apierrors.NewTooManyRequests("a fault of the plan", 0) },
	"InternalError":      func() *apierrors.StatusError { return InternalError },
	"ServiceUnavailable": func() *apierrors.StatusError { return Unavailable },
	"Timeout":            func() *apierrors.StatusError { return Timeout },
	"ResourceVersionTooLarge": func() *apierrors.StatusError {
		return tooLarge("2", "1")
	},
}

func statusNames() []string {
	var names []string
	for name := range statuses {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// withContinue returns the status of an expired continue token, with the token of an inconsistent
// continuation, as an API server answers: the same position with the revision -1. A token that cannot be
// read is left out.
func withContinue(status metav1.Status, token string) metav1.Status {
	parts, err := parseContinue(token)
	if err != nil {
		return status
	}
	parts.Revision = -1
	text, err := json.Marshal(parts)
	if err == nil {
		status.Continue = base64.RawURLEncoding.EncodeToString(text)
	}
	return status
}

// continueToken is the content of a Kubernetes API server's continue token.
type continueToken struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	Start    string `json:"start"`
}

func parseContinue(token string) (parts continueToken, err error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &parts)
	}
	return parts, err
}

// revisionOf returns the revision that a continue token continues, "" if it has none.
func revisionOf(token string) string {
	parts, err := parseContinue(token)
	if err != nil || parts.Revision <= 0 {
		return ""
	}
	return strconv.FormatInt(parts.Revision, 10)
}
