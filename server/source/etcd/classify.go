package etcd

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/keepwatch/keepwatch"
)

// failureTable maps an error of etcd or gRPC to a failure kind. The first row that
// matches counts; an error without a row is UnknownStatus.
var failureTable = []struct {
	name    string
	matches func(code codes.Code, message string) bool
	kind    keepwatch.FailureKind
}{
	{"compacted", messageContains("required revision has been compacted"), keepwatch.Expired},
	// Only quorum reads ask for a revision: if it is in the future, the history was replaced.
	{"a future revision", messageContains("required revision is a future revision"), keepwatch.Rewound},

	{"certificate refused by the client", messageContains("tls: failed to verify certificate"), keepwatch.Untrusted},
	{"certificate refused by etcd", messageContains("remote error: tls:"), keepwatch.Unauthorized},
	{"user or password", messageContains("etcdserver: user name is empty", "etcdserver: authentication failed",
		"etcdserver: invalid auth token", "etcdserver: revision of auth store is old"), keepwatch.Unauthorized},
	{"token", hasCode(codes.Unauthenticated), keepwatch.Unauthorized},
	{"not allowed", hasCode(codes.PermissionDenied), keepwatch.Forbidden},

	{"message too large", tooLarge, keepwatch.Undecodable},
	{"overload", hasCode(codes.ResourceExhausted), keepwatch.Throttled},
	// No leader, an election, a member that stops, a broken connection.
	{"unavailable", hasCode(codes.Unavailable, codes.DeadlineExceeded), keepwatch.Unreachable},
	{"ended", hasCode(codes.Canceled), keepwatch.Ended},
	{"server error", hasCode(codes.Internal, codes.DataLoss, codes.FailedPrecondition, codes.Aborted),
		keepwatch.ServerError},
	{"invalid request", hasCode(codes.InvalidArgument, codes.Unimplemented, codes.OutOfRange, codes.NotFound),
		keepwatch.Rejected},
}

// messageContains matches errors whose message has at least one of the parts.
func messageContains(parts ...string) func(codes.Code, string) bool {
	return func(_ codes.Code, message string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(message, part) })
	}
}

func hasCode(wanted ...codes.Code) func(codes.Code, string) bool {
	return func(code codes.Code, _ string) bool { return slices.Contains(wanted, code) }
}

// tooLarge matches a message that the client refuses to receive, or that etcd refuses to
// send: its gRPC sends at most 2 GiB.
func tooLarge(code codes.Code, message string) bool {
	return code == codes.ResourceExhausted &&
		(strings.Contains(message, "received message larger than max") ||
			strings.Contains(message, "trying to send message larger than max"))
}

func isTooLarge(err error) bool { return err != nil && tooLarge(codeAndMessage(err)) }

func kindOf(err error) keepwatch.FailureKind {
	code, message := codeAndMessage(err)
	for _, row := range failureTable {
		if row.matches(code, message) {
			return row.kind
		}
	}
	return keepwatch.UnknownStatus
}

// codeAndMessage returns an error's code and description. The etcd client converts some
// of etcd's errors to a type of its own.
func codeAndMessage(err error) (codes.Code, string) {
	var clientError rpctypes.EtcdError
	if errors.As(err, &clientError) {
		return clientError.Code(), clientError.Error()
	}
	s := status.Convert(err)
	return s.Code(), s.Message()
}

// failure returns the failure of a request that was made under ctx.
func (s *Source) failure(ctx context.Context, op string, err error) *keepwatch.Failure {
	var failure *keepwatch.Failure
	switch {
	case errors.As(err, &failure):
		return failure
	case errors.Is(ctx.Err(), context.Canceled):
		return keepwatch.Failed(keepwatch.Ended, "%s %s: cancelled: %w", op, s.prefix, context.Cause(ctx))
	case errors.Is(err, io.EOF):
		return keepwatch.Failed(keepwatch.Ended, "%s %s: etcd ended the stream", op, s.prefix)
	}
	kind := kindOf(err)
	if kind == keepwatch.Unreachable {
		// gRPC would wait for up to two minutes before it connects again. The reflector
		// decides how long to wait.
		s.conn.ResetConnectBackoff()
	}
	_, message := codeAndMessage(err)
	return keepwatch.Failed(kind, "%s %s: %s", op, s.prefix, message)
}

// cancelReason returns the error that the reason of a canceled watch describes: the
// reason is the text of an error as the server prints it.
func cancelReason(text string) error {
	if _, message, ok := strings.Cut(text, " desc = "); ok {
		text = message
	}
	return rpctypes.Error(status.Error(codes.Unknown, text))
}
