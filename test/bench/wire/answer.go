package wire

import (
	"context"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Request is a GET.
type Request struct {
	Path   string // with the query
	Accept string
	Gzip   bool // whether the answer may be compressed
	// Data gets the answer's body piece by piece, on the connection's goroutine. A
	// piece is valid until Data returns.
	Data func([]byte)
}

// Answer is the answer to a request.
type Answer struct {
	conn     *Conn
	id       uint32
	consumed uint32 // received bytes that no window update has returned; the connection's

	mu   sync.Mutex // locked while data runs, so that it does not run after the end of the answer
	data func([]byte)
	over bool

	begun, done chan struct{}
	status      string
	compressed  bool
	err         error // once done
}

// Get sends a request, and does not wait for the answer. It is safe for concurrent use. At
// most [Streams] answers may be open.
func (c *Conn) Get(r Request) (*Answer, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	a := &Answer{conn: c, id: c.next, data: r.Data, begun: make(chan struct{}), done: make(chan struct{})}
	c.mu.Lock()
	if c.cause != nil {
		defer c.mu.Unlock()
		return nil, c.cause
	}
	c.answers[a.id] = a
	c.mu.Unlock()
	c.next += 2
	err := c.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: a.id, BlockFragment: c.header(r), EndStream: true, EndHeaders: true,
	})
	return a, err
}

// header encodes a request. The tokens and paths here fit into one frame.
func (c *Conn) header(r Request) []byte {
	c.block.Reset()
	field := func(name, value string, secret bool) {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: secret}) // to memory
	}
	field(":method", "GET", false)
	field(":scheme", "https", false)
	field(":authority", c.endpoint.Address, false)
	field(":path", r.Path, false)
	field("accept", r.Accept, false)
	field("user-agent", "keepwatch-bench", false)
	if r.Gzip {
		field("accept-encoding", "gzip", false)
	}
	if c.endpoint.Token != "" {
		field("authorization", "Bearer "+c.endpoint.Token, false)
	}
	return c.block.Bytes()
}

func (a *Answer) begin(f *http2.MetaHeadersFrame) {
	for _, field := range f.RegularFields() {
		if strings.EqualFold(field.Name, "content-encoding") {
			a.compressed = field.Value == "gzip"
		}
	}
	a.status = f.PseudoValue("status")
	close(a.begun)
}

func (a *Answer) receive(piece []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.data(piece)
	}
}

func (a *Answer) finish(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	a.err = err
	close(a.done)
}

// Status waits for the header and returns its status, such as "200".
func (a *Answer) Status(ctx context.Context) (string, error) {
	select {
	case <-a.begun:
		return a.status, nil
	case <-ctx.Done():
		a.cancel()
		return "", ctx.Err()
	case <-a.done:
	}
	select {
	case <-a.begun:
		return a.status, nil
	default:
		return "", a.err
	}
}

// Compressed reports whether the body is gzip. Call it after Status.
func (a *Answer) Compressed() bool { return a.compressed }

// Done is closed at the end of the answer.
func (a *Answer) Done() <-chan struct{} { return a.done }

// Wait waits for the end of the body. It returns an error if the server, or ctx, ends it
// before. No data arrives after it.
func (a *Answer) Wait(ctx context.Context) error {
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		a.cancel()
		<-a.done
		return ctx.Err()
	}
}

// cancel asks the server to end the answer. The connection frees it when the server does.
func (a *Answer) cancel() {
	_ = a.conn.write(func() error { return a.conn.framer.WriteRSTStream(a.id, http2.ErrCodeCancel) })
	a.conn.end(a.id, context.Canceled)
}
