package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// errIdle is the cause of an exchange that idleTimer canceled.
var errIdle = errors.New("the server sent nothing")

// tooLong is the error of a part of a body that exceeds a bound.
type tooLong int64

func (bound tooLong) Error() string {
	return fmt.Sprintf("an object is too long: more than %d bytes", int64(bound))
}

// body is a response body. It bounds the length of each part and the wait for data, and
// records the error that ended it: a JSON decoder's error does not distinguish a failed
// connection from invalid text. One goroutine reads it.
type body struct {
	io.ReadCloser
	idle   *idleTimer
	cancel context.CancelCauseFunc

	limit   int64 // of one part, in bytes
	read    int64 // so far
	allowed int64 // may be read, in bytes from the start
	err     error // of the last Read: sticky
}

// allowPart begins a part at the given offset, and clears the error of a previous part
// that was too long.
func (b *body) allowPart(offset int64) {
	b.allowed = offset + b.limit
	if b.err != nil && as[tooLong](b.err) {
		b.err = nil
	}
}

func (b *body) Read(p []byte) (int, error) {
	if b.err == nil && b.read >= b.allowed {
		b.err = tooLong(b.limit)
	}
	if b.err != nil {
		return 0, b.err
	}
	b.idle.start()
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.allowed-b.read)])
	b.idle.stop()
	b.read += int64(n)
	b.err = err
	if n > 0 {
		return n, nil
	}
	return 0, err
}

// close ends the exchange. The connection is reused if the response was read to its end.
func (b *body) close() {
	b.cancel(nil)
	_ = b.ReadCloser.Close()
}

// idleTimer cancels an exchange if the server sends nothing for too long, for example on a
// half-open connection.
type idleTimer struct {
	limit      time.Duration
	cumulative bool // the limit is for the sum of the waits, not for each
	cancel     context.CancelCauseFunc
	timer      *time.Timer
	since      time.Time     // of the wait
	spent      time.Duration // in cumulative waits
}

// start starts a wait for the server.
func (s *idleTimer) start() {
	s.since = time.Now()
	if s.timer == nil {
		s.timer = time.AfterFunc(s.limit, func() { s.cancel(errIdle) })
		return
	}
	s.timer.Reset(s.limit - s.spent)
}

// stop ends the wait.
func (s *idleTimer) stop() {
	s.timer.Stop()
	if s.cumulative {
		s.spent += time.Since(s.since)
	}
}

// setLimit sets a limit for each following wait.
func (s *idleTimer) setLimit(limit time.Duration) { s.limit, s.cumulative, s.spent = limit, false, 0 }
