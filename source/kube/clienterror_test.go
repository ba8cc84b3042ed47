package kube_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/kube"
)

// decodingError returns the error of client-go for a watch that it can't continue.
func decodingError(cause string) error {
	report := apierrors.NewClientErrorReporter(http.StatusInternalServerError, "GET", "ClientWatchDecoding")
	return apierrors.FromObject(report.AsObject(errors.New("unable to decode an event from the watch stream: " + cause)))
}

func TestFailureOfClientErrors(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, test := range map[string]struct {
		err  error
		kind keepwatch.FailureKind
		wait time.Duration
	}{
		"expired": {err: apierrors.NewResourceExpired("too old"), kind: keepwatch.Expired},
		"gone": {err: apierrors.NewGenericServerResponse(http.StatusGone, "watch", pods, "", "too old", 0, true),
			kind: keepwatch.Expired},
		"wrapped":      {err: fmt.Errorf("list: %w", apierrors.NewResourceExpired("too old")), kind: keepwatch.Expired},
		"forbidden":    {err: apierrors.NewForbidden(pods, "", errors.New("no")), kind: keepwatch.Forbidden},
		"unauthorized": {err: apierrors.NewUnauthorized("who?"), kind: keepwatch.Unauthorized},
		"absent":       {err: apierrors.NewNotFound(pods, ""), kind: keepwatch.Absent},
		"throttled":    {err: apierrors.NewTooManyRequests("busy", 7), kind: keepwatch.Throttled, wait: 7 * time.Second},
		"server error": {err: apierrors.NewInternalError(errors.New("oops")), kind: keepwatch.ServerError},
		"unknown object": {err: &apierrors.UnexpectedObjectError{Object: &metav1.APIVersions{}},
			kind: keepwatch.UnknownStatus},
		"refused": {err: &url.Error{Op: "Get", URL: "http://a", Err: syscall.ECONNREFUSED},
			kind: keepwatch.Unreachable},
		"truncated":       {err: io.ErrUnexpectedEOF, kind: keepwatch.Unreachable},
		"unreadable text": {err: decodingError("couldn't get version/kind"), kind: keepwatch.Undecodable},
		"h2 lost":         {err: decodingError("http2: client connection lost"), kind: keepwatch.Unreachable},
		"h2 reset":        {err: decodingError("stream error: stream ID 5; INTERNAL_ERROR"), kind: keepwatch.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			f := kube.FailureOf("watch pods", test.err)
			if f.Kind != test.kind || f.RetryAfter != test.wait {
				t.Errorf("%v after %v, want %v after %v", f.Kind, f.RetryAfter, test.kind, test.wait)
			}
			if !errors.Is(f, test.err) {
				t.Errorf("%q does not wrap the client's error", f)
			}
		})
	}
}

func TestIsRequestError(t *testing.T) {
	for err, want := range map[error]bool{
		apierrors.NewResourceExpired("too old"):                           true,
		&url.Error{Op: "Get", URL: "http://a", Err: syscall.ECONNREFUSED}: true,
		errors.New("strconv.Atoi: parsing"):                               false,
	} {
		if got := kube.IsRequestError(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}
