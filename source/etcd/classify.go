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

// table says what an error of etcd or of gRPC means. The first row that matches
// counts; what matches none is UnknownStatus.
var failureTable = []struct {
	what    string
	matches func(code codes.Code, words string) bool
	kind    keepwatch.FailureKind
}{
	{"compacted", messageContains("required revision has been compacted"), keepwatch.Expired},
	// Only quorum reads ask for a revision: what is in their future is in nobody's past.
	{"a future revision", messageContains("required revision is a future revision"), keepwatch.Rewound},

	{"certificate refused by us", messageContains("tls: failed to verify certificate"), keepwatch.Untrusted},
	{"certificate refused by etcd", messageContains("remote error: tls:"), keepwatch.Unauthorized},
	{"user or password", messageContains("etcdserver: user name is empty", "etcdserver: authentication failed",
		"etcdserver: invalid auth token", "etcdserver: revision of auth store is old"), keepwatch.Unauthorized},
	{"token", hasCode(codes.Unauthenticated), keepwatch.Unauthorized},
	{"not allowed", hasCode(codes.PermissionDenied), keepwatch.Forbidden},

	{"longer than is allowed", tooLarge, keepwatch.Undecodable},
	{"overload", hasCode(codes.ResourceExhausted), keepwatch.Throttled},
	// No leader, an election, a member that stops, a broken connection.
	{"away", hasCode(codes.Unavailable, codes.DeadlineExceeded), keepwatch.Unreachable},
	{"ended", hasCode(codes.Canceled), keepwatch.Ended},
	{"trouble on its side", hasCode(codes.Internal, codes.DataLoss, codes.FailedPrecondition, codes.Aborted), keepwatch.ServerError},
	{"the request itself is wrong", hasCode(codes.InvalidArgument, codes.Unimplemented, codes.OutOfRange, codes.NotFound), keepwatch.Rejected},
}

// saysAny matches errors whose text has at least one of the parts.
func messageContains(parts ...string) func(codes.Code, string) bool {
	return func(_ codes.Code, message string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(message, part) })
	}
}

func hasCode(wanted ...codes.Code) func(codes.Code, string) bool {
	return func(code codes.Code, _ string) bool { return slices.Contains(wanted, code) }
}

// tooLarge knows a message that was refused by us, or by etcd, whose gRPC sends no more than
// 2 GiB.
func tooLarge(code codes.Code, message string) bool {
	return code == codes.ResourceExhausted &&
		(strings.Contains(message, "received message larger than max") || strings.Contains(message, "trying to send message larger than max"))
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

// wordsOf is an error's code and description. The client turns some of etcd's
// errors into a type of its own.
func codeAndMessage(err error) (codes.Code, string) {
	var clientError rpctypes.EtcdError
	if errors.As(err, &clientError) {
		return clientError.Code(), clientError.Error()
	}
	s := status.Convert(err)
	return s.Code(), s.Message()
}

// failure is what went wrong with a request that was made under ctx.
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
		// gRPC would wait for up to two minutes before it connects again. How long to
		// wait is decided above.
		s.conn.ResetConnectBackoff()
	}
	_, message := codeAndMessage(err)
	return keepwatch.Failed(kind, "%s %s: %s", op, s.prefix, message)
}

// reason is the error that the reason of a cancelled watch stands for: the text of
// an error as the server prints it.
func cancelReason(text string) error {
	if _, message, ok := strings.Cut(text, " desc = "); ok {
		text = message
	}
	return rpctypes.Error(status.Error(codes.Unknown, text))
}
