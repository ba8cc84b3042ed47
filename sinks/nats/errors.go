package nats

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// refusal is an error of this package that no other attempt can change.
type refusal struct{ error }

func refusef(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

var (
	// errLost is the end of an error for a broker that has lost what it has acknowledged.
	errLost = refusef(
		"it was restored, made anew or lost with its machine (see sync_interval of nats-server); delete stream and bucket to begin anew")
	// errExpired is that of a stream whose limits have removed what the bucket does not have.
	errExpired = refusef(
		"the limits of the stream (max_age, max_bytes, max_msgs) have removed the others; raise them, and delete stream and bucket to begin anew")
	// errTakenOver is returned after another process has opened the sink.
	errTakenOver = refusef("another keepwatch sync has taken over: run one for each stream or bucket")
)

// retried are errors that may be gone at another attempt, also at a start. Later, all errors of the client are: most of
// them have no value of their own.
var retried = []error{
	nats.ErrNoServers, nats.ErrTimeout, nats.ErrConnectionClosed, nats.ErrDisconnected, nats.ErrStaleConnection,
	nats.ErrNoResponders,
	io.EOF, io.ErrUnexpectedEOF, // of a connection that breaks while it begins
	nats.ErrMaxConnectionsExceeded, nats.ErrMaxAccountConnectionsExceeded, nats.ErrBadHeaderMsg, nats.ErrSlowConsumer,
	jetstream.ErrServerShutdown, jetstream.ErrConsumerLeadershipChanged, // the server of a consumer ends
	jetstream.ErrNoStreamResponse, jetstream.ErrNoHeartbeat,
	jetstream.ErrConsumerDeleted, jetstream.ErrConsumerNotFound, jetstream.ErrInvalidJSAck, jetstream.ErrConnectionClosed,
	jetstream.ErrJetStreamNotEnabled,
	context.DeadlineExceeded,
}

// refused are errors about credentials. They end a start, and are retried later.
var refused = []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
	nats.ErrPermissionViolation}

// unencrypted reports whether TLS is required, and the server has none, or no certificate that can be verified.
func unencrypted(err error) bool {
	return errors.Is(err, nats.ErrSecureConnWanted) || errors.As(err, new(*tls.CertificateVerificationError))
}

// wrongSequence are the codes of a message that another one has preceded.
var wrongSequence = []jetstream.ErrorCode{jetstream.JSErrCodeStreamWrongLastSequence,
	jetstream.JSErrCodeStreamWrongLastSequenceConstant}

// tooLarge reports whether the server has no room for a batch: its stream is full (10077), or its limit of messages is
// lower (10199).
func tooLarge(err error) bool {
	var reported *jetstream.APIError
	return errors.As(err, &reported) && (reported.ErrorCode == 10077 || reported.ErrorCode == 10199)
}

// incompleteBatch is the code of a batch of which the server does not have all messages: its leader changed, or it has
// refused some.
const incompleteBatch = 10176

// failure makes an error that another attempt may not meet a [sink.Unavailable].
func (s *Sink) failure(err error) error {
	is := func(target error) bool { return errors.Is(err, target) }
	named := fmt.Errorf("nats: %w", err)
	var reported *jetstream.APIError
	switch {
	case errors.As(err, new(refusal)):
		return named
	case errors.As(err, &reported) && slices.Contains(wrongSequence, reported.ErrorCode):
		return sink.Unavailablef("nats: another program has published to %s or its bucket, or a message was lost: %w",
			s.target.name(), err)
	case errors.As(err, &reported) && reported.ErrorCode == incompleteBatch:
		return sink.Unavailablef(
			"nats: %s or its bucket has not received all messages of a batch; if this repeats, an account has no room, max_batch_timeout is too short, or the user may not publish to all subjects: %w", s.target.name(), err)
	case errors.As(err, &reported) && (reported.Code >= 500 || reported.Code == 429):
		return &sink.Unavailable{Err: named} // JetStream does not run yet, or has no room
	case slices.ContainsFunc(refused, is):
		named = fmt.Errorf(
			"nats: the server refuses the user, the password or the credentials, or a permission is missing: %w", err)
	case unencrypted(err):
		named = fmt.Errorf(
			"nats: TLS is required by tls=true or ca of the address, or to send a password to another machine: %w", err)
	case slices.ContainsFunc(retried, is), errors.As(err, new(net.Error)), errors.As(err, new(*sink.Unavailable)):
		return &sink.Unavailable{Err: named}
	}
	if s.opened {
		return &sink.Unavailable{Err: named}
	}
	return named
}
