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

// FailureOf is what an error of a client-go client means, or that of an ERROR
// event in its watch (see apierrors.FromObject): the same as this package makes
// of the answer itself. The failure wraps err, so that it can be asked with
// errors.As and apierrors.Is…; its message begins with op, what was being done.
func FailureOf(op string, err error) *keepwatch.Failure {
	var told apierrors.APIStatus
	var unexpected *apierrors.UnexpectedObjectError
	switch {
	case errors.As(err, &told):
	case errors.As(err, &unexpected):
		return keepwatch.Failed(keepwatch.UnknownStatus, "%s: %w", op, err)
	default:
		return keepwatch.Failed(kindOfCut(err), "%s: %w", op, err)
	}
	status, wait := told.Status(), time.Duration(0)
	if status.Details != nil {
		wait = min(time.Duration(status.Details.RetryAfterSeconds)*time.Second, maxWait)
	}
	failure := keepwatch.Failed(kindOfStatus(&status, wait > 0), "%s: %w", op, err)
	failure.RetryAfter = wait
	if apierrors.HasStatusCause(err, decoding) {
		failure.Kind = kindOfUnread(status.Message)
	}
	return failure
}

// decoding marks the Status that client-go makes up itself when a watch can't be
// read on, whatever the reason: the text, or the connection, of which only words
// are left then.
const decoding metav1.CauseType = "ClientWatchDecoding"

var brokenConnection = []string{
	"connection lost", "connection reset", "stream error", "broken pipe", "i/o timeout", "deadline exceeded", "unexpected EOF",
}

func kindOfUnread(message string) keepwatch.FailureKind {
	if slices.ContainsFunc(brokenConnection, func(words string) bool { return strings.Contains(message, words) }) {
		return keepwatch.Unreachable
	}
	return keepwatch.Undecodable
}

// Answered reports whether an error came from a server or the way to one, and not
// from the code that was to ask it.
func Answered(err error) bool {
	var status apierrors.APIStatus
	var request *url.Error
	var connection net.Error
	return errors.As(err, &status) || errors.As(err, &request) || errors.As(err, &connection)
}
