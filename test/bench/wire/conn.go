// Package wire is an HTTP/2 client that costs about as little as one can, for
// benchmarks in which client and server share the cores: one goroutine reads all
// answers of a connection, and hands their bytes on where they are, in the buffer
// they were read into.
package wire

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Streams is how many answers a connection may have open, by the default of API
// servers.
const Streams = 100

// What a Go client lets a server send before it has read, for an answer and for all
// of a connection.
const (
	answerWindow = 4 << 20
	connWindow   = 1 << 30
	// initialWindow is the protocol's, of a connection.
	initialWindow = 1<<16 - 1
)

// Endpoint is a server's address, and the credentials of the client.
type Endpoint struct {
	Address string // host:port
	TLS     *tls.Config
	Token   string // bearer token, or empty
}

// Conn is one connection. Answers arrive while Run runs.
type Conn struct {
	endpoint Endpoint
	net      net.Conn
	framer   *http2.Framer // read by Run alone
	consumed uint32        // received bytes that no window update has returned; Run's

	mu      sync.Mutex
	answers map[uint32]*Answer
	cause   error // why there are no more answers, once there are none

	writing sync.Mutex // locked while a frame is written; locked before mu
	encoder *hpack.Encoder
	block   bytes.Buffer // of the encoder
	next    uint32       // id of the next request
}

// Dial connects to a server. The caller runs Run, and ends it with Close.
func Dial(ctx context.Context, e Endpoint) (*Conn, error) {
	config := e.TLS.Clone()
	config.NextProtos = []string{http2.NextProtoTLS}
	dialer := tls.Dialer{Config: config}
	conn, err := dialer.DialContext(ctx, "tcp", e.Address)
	if err != nil {
		return nil, err
	}
	c := &Conn{
		endpoint: e, net: conn, answers: map[uint32]*Answer{}, next: 1,
		framer: http2.NewFramer(conn, bufio.NewReaderSize(conn, 64<<10)),
	}
	c.encoder = hpack.NewEncoder(&c.block)
	c.framer.SetReuseFrames()
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := c.handshake(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

func (c *Conn) handshake() error {
	if _, err := c.net.Write([]byte(http2.ClientPreface)); err != nil {
		return err
	}
	settings := []http2.Setting{{ID: http2.SettingEnablePush, Val: 0}, {ID: http2.SettingInitialWindowSize,
		Val: answerWindow}}
	if err := c.framer.WriteSettings(settings...); err != nil {
		return err
	}
	return c.framer.WriteWindowUpdate(0, connWindow-initialWindow)
}

// Close ends the connection and with it Run and every answer.
func (c *Conn) Close() { _ = c.net.Close() }

// errClosed is the cause of answers that end without one.
var errClosed = errors.New("the connection has ended")

// Run reads until the connection ends, and returns the reason. All answers have ended
// then.
func (c *Conn) Run() error {
	var err error
	for err == nil {
		var frame http2.Frame
		if frame, err = c.framer.ReadFrame(); err == nil {
			err = c.handle(frame)
		} else if stream, ok := errors.AsType[http2.StreamError](err); ok {
			c.end(stream.StreamID, stream)
			err = nil
		}
	}
	_ = c.net.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cause = fmt.Errorf("%w: %w", errClosed, err)
	for id, answer := range c.answers {
		delete(c.answers, id)
		answer.finish(c.cause)
	}
	return err
}

// handle handles a frame.
func (c *Conn) handle(frame http2.Frame) error {
	switch f := frame.(type) {
	case *http2.DataFrame:
		return c.data(f)
	case *http2.MetaHeadersFrame:
		if answer := c.answer(f.StreamID); answer != nil && f.PseudoValue("status") != "" {
			answer.begin(f)
		}
		if f.StreamEnded() {
			c.end(f.StreamID, nil)
		}
	case *http2.RSTStreamFrame:
		c.end(f.StreamID, fmt.Errorf("the server cut the answer off: %v", f.ErrCode))
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return c.write(func() error { return c.framer.WriteSettingsAck() })
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.write(func() error { return c.framer.WritePing(true, f.Data) })
		}
	}
	return nil // GOAWAY, too: a connection that answers nothing more is closed
}

// data passes the data to its answer, and lets the server send as much again. Padding
// counts.
func (c *Conn) data(f *http2.DataFrame) error {
	length := f.Length
	if c.consumed += length; c.consumed >= connWindow/2 {
		if err := c.allow(0, c.consumed); err != nil {
			return err
		}
		c.consumed = 0
	}
	answer := c.answer(f.StreamID)
	if answer == nil {
		return nil
	}
	answer.receive(f.Data())
	if f.StreamEnded() {
		c.end(f.StreamID, nil)
		return nil
	}
	if answer.consumed += length; answer.consumed >= answerWindow/2 {
		consumed := answer.consumed
		answer.consumed = 0
		return c.allow(f.StreamID, consumed)
	}
	return nil
}

func (c *Conn) allow(id, bytes uint32) error {
	return c.write(func() error { return c.framer.WriteWindowUpdate(id, bytes) })
}

func (c *Conn) write(frame func() error) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return frame()
}

func (c *Conn) answer(id uint32) *Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answers[id]
}

// end ends an answer, with an error unless it is whole.
func (c *Conn) end(id uint32, err error) {
	c.mu.Lock()
	answer := c.answers[id]
	delete(c.answers, id)
	c.mu.Unlock()
	if answer != nil {
		answer.finish(err)
	}
}
