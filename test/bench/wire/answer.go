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

// Answer is what comes back.
type Answer struct {
	conn     *Conn
	id       uint32
	consumed uint32 // bytes the server hasn't been told of; the connection's

	mu   sync.Mutex // held while data runs, so that it doesn't once the answer is done
	data func([]byte)
	over bool

	begun, done chan struct{}
	status      string
	compressed  bool
	err         error // once done
}

// Get asks, and does not wait for the answer. It is safe for concurrent use. No more
// than [Streams] answers may be open.
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

func (a *Answer) take(piece []byte) {
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

// Compressed is whether the body is gzip, behind Status.
func (a *Answer) Compressed() bool { return a.compressed }

// Done is closed when nothing more comes.
func (a *Answer) Done() <-chan struct{} { return a.done }

// Wait waits for the end of the body. It is an error if the server, or ctx, ends it
// before. No more data comes after it.
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

// cancel tells the server that nobody reads the answer, and leaves its end to the
// connection's.
func (a *Answer) cancel() {
	_ = a.conn.write(func() error { return a.conn.framer.WriteRSTStream(a.id, http2.ErrCodeCancel) })
	a.conn.end(a.id, context.Canceled)
}
