package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Why a body ended that did not end by itself.
var errIdle = errors.New("the connection was silent")

// tooLong is the bound that a part of a body has passed.
type tooLong int64

func (bound tooLong) Error() string {
	return fmt.Sprintf("an object is too long: more than %d bytes", int64(bound))
}

// body is a response while it is being read. It bounds what one part of it may
// be long, and how long it may be silent, and remembers what ended it: a JSON
// decoder's error does not tell the end of the connection from the end of sense.
// It is read from one goroutine.
type body struct {
	io.ReadCloser
	silence *silence
	cancel  context.CancelCauseFunc

	limit int64 // of one part, in bytes
	read  int64 // so far
	until int64 // may be read
	err   error // of the last Read: sticky
}

// allow begins a part at the given offset. That the one before was too long is
// over.
func (b *body) allow(offset int64) {
	b.until = offset + b.limit
	if b.err != nil && as[tooLong](b.err) {
		b.err = nil
	}
}

func (b *body) Read(p []byte) (int, error) {
	if b.err == nil && b.read >= b.until {
		b.err = tooLong(b.limit)
	}
	if b.err != nil {
		return 0, b.err
	}
	b.silence.begin()
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.until-b.read)])
	b.silence.end()
	b.read += int64(n)
	b.err = err
	if n > 0 {
		return n, nil
	}
	return 0, err
}

// close ends the exchange. A connection whose response was read to its end can
// be used again.
func (b *body) close() {
	b.cancel(nil)
	_ = b.ReadCloser.Close()
}

// silence ends an exchange whose other side says nothing for too long, though
// the connection may look alive (half-open).
type silence struct {
	limit  time.Duration
	sums   bool // the limit is for all waits together from now on, not for each
	cancel context.CancelCauseFunc
	timer  *time.Timer
	since  time.Time     // of the wait
	spent  time.Duration // on the waits that are summed
}

// begin starts to wait for the other side.
func (s *silence) begin() {
	s.since = time.Now()
	if s.timer == nil {
		s.timer = time.AfterFunc(s.limit, func() { s.cancel(errIdle) })
		return
	}
	s.timer.Reset(s.limit - s.spent)
}

// end says that it was heard, or that nobody waits for it any more.
func (s *silence) end() {
	s.timer.Stop()
	if s.sums {
		s.spent += time.Since(s.since)
	}
}

// each goes back to a limit for each wait.
func (s *silence) each(limit time.Duration) { s.limit, s.sums, s.spent = limit, false, 0 }
