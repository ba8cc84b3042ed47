package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// openLog returns the stream of the address, which is made if it does not exist.
func (s *Sink) openLog(ctx context.Context) (*journal, error) {
	return s.openJournal(ctx, jetstream.StreamConfig{
		Name: s.target.stream, Subjects: []string{s.target.filter()}, Replicas: s.target.replicas,
		Description: "Kubernetes changes, written by keepwatch sync alone", AllowDirect: true, AllowAtomicPublish: true,
	}, checkLog)
}

// openBucket returns the stream of the bucket, which is made if it does not exist. A bucket that
// jetstream.CreateKeyValue makes with a TTL for markers would have messages of the server's own.
func (s *Sink) openBucket(ctx context.Context) (*journal, error) {
	return s.openJournal(ctx, jetstream.StreamConfig{
		Name: "KV_" + s.target.bucket, Subjects: []string{s.prefix() + ">"}, Replicas: s.target.replicas,
		Description: "Kubernetes objects, written by keepwatch sync alone", AllowDirect: true, AllowAtomicPublish: true,
		MaxMsgsPerSubject: 1, AllowMsgTTL: true, AllowRollup: true, DenyDelete: true, Discard: jetstream.DiscardNew,
	}, checkBucket)
}

func (s *Sink) openJournal(ctx context.Context, config jetstream.StreamConfig,
	check func(jetstream.StreamConfig) error) (*journal, error) {
	opened, err := s.js.Stream(ctx, config.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		opened, err = s.js.CreateStream(ctx, config)
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", config.Name, err)
	}
	if err := check(opened.CachedInfo().Config); err != nil {
		return nil, refusef("stream %s %w", config.Name, err)
	}
	if !opened.CachedInfo().Config.AllowAtomicPublish {
		if opened, err = s.allowBatches(ctx, opened.CachedInfo().Config); err != nil {
			return nil, err
		}
	}
	return newJournal(s.conn, s.js, opened, s.closed), nil
}

// allowBatches changes a stream that was made without atomic batches, as by an earlier keepwatch.
func (s *Sink) allowBatches(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	c.AllowAtomicPublish = true
	changed, err := s.js.UpdateStream(ctx, c)
	switch {
	// the server does not answer what it does not permit
	case err != nil && errors.Is(err, context.DeadlineExceeded) && !s.opened:
		return nil, fmt.Errorf(
			"stream %s must allow atomic batches (allow_atomic), and cannot be changed: give the user the permission to publish to $JS.API.STREAM.UPDATE.%s, or change it by hand: %v", c.Name, c.Name, err)
	case err != nil:
		return nil, fmt.Errorf("stream %s must allow atomic batches (allow_atomic), and cannot be changed: %w", c.Name, err)
	case !changed.CachedInfo().Config.AllowAtomicPublish: // a server ignores what it does not know
		return nil, refusef("stream %s allows no atomic batches: they need nats-server 2.12 or newer", c.Name)
	}
	return changed, nil
}

// checkLog returns an error for a stream whose newest messages may vanish before they were read at the next start.
func checkLog(c jetstream.StreamConfig) error {
	switch {
	case c.Retention != jetstream.LimitsPolicy:
		return fmt.Errorf(
			"has the retention policy %s: its consumers would remove what the next start must read; it needs limits",
			c.Retention)
	case c.MaxMsgsPerSubject > 0:
		return errors.New(
			"has a limit of messages per subject, which removes changes: remove it, or use a bucket for current objects")
	case c.Mirror != nil || len(c.Sources) > 0:
		return errors.New("has messages of other streams: give keepwatch sync one of its own")
	}
	return nil
}

// checkBucket returns an error for a bucket whose entries vanish.
func checkBucket(c jetstream.StreamConfig) error {
	switch {
	case !c.AllowMsgTTL:
		return errors.New(
			"permits no TTL of messages, which markers of deletions need: delete it, and keepwatch sync makes it as it must be")
	case c.MaxAge > 0 || c.SubjectDeleteMarkerTTL > 0:
		return errors.New("has a TTL: objects would vanish; remove it")
	case c.Discard != jetstream.DiscardNew && (c.MaxBytes > 0 || c.MaxMsgs > 0):
		return errors.New("discards old entries when it is full: set its discard policy to new")
	}
	return nil
}
