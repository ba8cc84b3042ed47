package kube

import (
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
)

// FailureOf returns the failure of an error from a client-go client, or from an ERROR event
// of its watch (see apierrors.FromObject). It has the kind that a Source returns for the
// same response. The failure wraps err for errors.As and apierrors.Is…; its message begins
// with op, the operation.
func FailureOf(op string, err error) *keepwatch.Failure {
	var apiStatus apierrors.APIStatus
	var unexpected *apierrors.UnexpectedObjectError
	switch {
	case errors.As(err, &apiStatus):
	case errors.As(err, &unexpected):
		return keepwatch.Failed(keepwatch.UnknownStatus, "%s: %w", op, err)
	default:
		return keepwatch.Failed(kindOfTransportError(err), "%s: %w", op, err)
	}
	status, wait := apiStatus.Status(), time.Duration(0)
	if status.Details != nil {
		wait = min(time.Duration(status.Details.RetryAfterSeconds)*time.Second, maxRetryAfter)
	}
	failure := keepwatch.Failed(kindOfStatus(&status, wait > 0), "%s: %w", op, err)
	failure.RetryAfter = wait
	if apierrors.HasStatusCause(err, watchDecoding) {
		failure.Kind = kindOfWatchDecoding(status.Message)
	}
	return failure
}

// watchDecoding is the cause of the Status that client-go creates when it can't continue
// a watch. Invalid text and a failed connection differ only in the message.
const watchDecoding metav1.CauseType = "ClientWatchDecoding"

var brokenConnection = []string{
	"connection lost", "connection reset", "stream error", "broken pipe", "i/o timeout", "deadline exceeded",
	"unexpected EOF",
}

func kindOfWatchDecoding(message string) keepwatch.FailureKind {
	if slices.ContainsFunc(brokenConnection, func(text string) bool { return strings.Contains(message, text) }) {
		return keepwatch.Unreachable
	}
	return keepwatch.Undecodable
}

// IsRequestError reports whether err is a server's response or a connection's error, and
// not an error of the code that should send the request.
func IsRequestError(err error) bool {
	var status apierrors.APIStatus
	var request *url.Error
	var connection net.Error
	return errors.As(err, &status) || errors.As(err, &request) || errors.As(err, &connection)
}
