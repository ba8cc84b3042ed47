package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// refusal is an error that no other attempt can change.
type refusal struct{ error }

func refusef(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// insecure is an error of a broker that would receive the password without encryption.
type insecure struct{ error }

func insecuref(format string, args ...any) error { return insecure{fmt.Errorf(format, args...)} }

// errTakenOver is returned after another process has opened the sink.
var errTakenOver = refusef("another keepwatch sync has taken over: run one for each state topic")

// replaced are errors of a producer after another one with its transactional id.
var replaced = []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping,
	kerr.ConcurrentTransactions, kerr.InvalidTxnState, kerr.TransactionAbortable}

// forbidden are errors about credentials. They end a start, and are retried later.
var forbidden = []error{
	kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState, kerr.TopicAuthorizationFailed,
	kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed,
}

// failure makes an error that another attempt may not meet a [sink.Unavailable]. At the start, errors about the address
// and the settings are final.
func (s *Sink) failure(err error) error {
	is := func(target error) bool { return errors.Is(err, target) }
	named := fmt.Errorf("kafka: %w", err)
	final := !s.opened && isSetting(err)
	switch {
	case errors.As(err, new(refusal)):
		return named
	case slices.ContainsFunc(replaced, is):
		return sink.Unavailablef(
			"kafka: another process writes with the transactional id %s, or the broker has ended a transaction that took too long: %w", s.target.state, err)
	case slices.ContainsFunc(forbidden, is):
		named = fmt.Errorf("kafka: the broker refuses the user or the password, or a permission is missing: %w", err)
	}
	if final {
		return named
	}
	return &sink.Unavailable{Err: named}
}

// isSetting reports whether an error is about what the address says, or about the broker's configuration.
func isSetting(err error) bool {
	var reported *kerr.Error
	return errors.As(err, &reported) && !reported.Retriable || errors.As(err, new(insecure)) ||
		errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(x509.UnknownAuthorityError))
}
