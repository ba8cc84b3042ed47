package past

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

func statusError(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason,
		Message: message}}
}

func unauthorized() error {
	return statusError(http.StatusUnauthorized, metav1.StatusReasonUnauthorized,
		"this server needs its bearer token, which the kubeconfig has")
}

func badRequest(err error) error { return apierrors.NewBadRequest(err.Error()) }

func notFound(message string) error {
	return statusError(http.StatusNotFound, metav1.StatusReasonNotFound, message)
}

// gone is the error of a moment that is not known. Its reason is the API's for a resourceVersion that is too old.
func gone(u *history.Unknown) error { return apierrors.NewResourceExpired(u.Error()) }

func readOnly(info *request.RequestInfo) error {
	return statusError(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		fmt.Sprintf("the past is read-only: there is no %s of %s", info.Verb, info.Resource))
}

func noSubresource(info *request.RequestInfo) error {
	return notFound(fmt.Sprintf("the history has objects, and no %s/%s", info.Resource, info.Subresource))
}

// checkSelector returns the API's error for a selector that is not valid, or names a field that the resource cannot
// be selected by.
func checkSelector(q *http.Request, f *format) error {
	query := q.URL.Query()
	if _, err := labels.Parse(query.Get("labelSelector")); err != nil {
		return badRequest(fmt.Errorf("unable to parse labelSelector: %w", err))
	}
	selector, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return badRequest(fmt.Errorf("unable to parse fieldSelector: %w", err))
	}
	if _, err := selector.Transform(f.fieldLabel); err != nil {
		return badRequest(err)
	}
	return nil
}

// refuse answers what the read path does not.
func refuse(w http.ResponseWriter, q *http.Request) {
	accept := q.Header.Get("Accept")
	switch {
	case accept != "" && !strings.Contains(accept, "json") && !strings.Contains(accept, "*/*"):
		writeStatus(w, statusError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
			"the history is served as JSON, as Tables, and as metadata"))
	default:
		writeStatus(w, badRequest(errors.New("the parameters are not valid, or ask for what a history does not have: "+
			q.URL.RawQuery)))
	}
}

// statusOf returns the status of an error.
func statusOf(err error) metav1.Status {
	if known, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return known.ErrStatus
	}
	if errors.As(err, new(*sink.Unavailable)) {
		return apierrors.NewServiceUnavailable(err.Error()).ErrStatus
	}
	return apierrors.NewInternalError(err).ErrStatus
}

// setRetryAfter sets the header of an error that another attempt may not meet.
func setRetryAfter(w http.ResponseWriter, status metav1.Status) {
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
}

// warn says in a Warning, too, why a request is refused: a client begins with discovery, of whose errors client-go
// gives the code alone, and kubectl prints warnings.
func warn(w http.ResponseWriter, err error) {
	if header, invalid := net.NewWarningHeader(299, "-", err.Error()); invalid == nil {
		w.Header().Add("Warning", header)
	}
}

// writeStatus answers with an error.
func writeStatus(w http.ResponseWriter, err error) {
	status := statusOf(err)
	setRetryAfter(w, status)
	status.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	writeJSON(w, int(status.Code), status)
}
