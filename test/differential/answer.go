package differential

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// maxBody bounds an answer. The world is far smaller.
	maxBody = 64 << 20
	// requestTimeout bounds one request, however busy the machine is.
	requestTimeout = time.Minute
	// throttles bounds the retries of a request after a 429.
	throttles = 20
)

// Answer is one server's answer.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // without Content-Encoding
	// Streamed is true if the body is Events.
	Streamed bool
	Events   []Event
	// Broken is why the answer has no regular end, or nothing.
	Incomplete string
}

// Server is a server whose answers are compared: a [peer.Server], for example.
type Server interface {
	// Config returns a client configuration with all permissions.
	Config() *rest.Config
	// Restart ends the server and starts it again at the same address.
	Restart(context.Context) error
}

// Side is one of the two servers.
type Side struct {
	Name         string
	server       Server
	host         string
	http1, http2 *http.Client
}

// NewSide connects to a server. Close ends its connections.
func NewSide(name string, server Server) (*Side, error) {
	s := &Side{Name: name, server: server, host: server.Config().Host}
	var err error
	if s.http1, err = client(server, "http/1.1"); err != nil {
		return nil, err
	}
	s.http2, err = client(server, "h2")
	return s, err
}

// client returns a client that adds only its credentials to requests, and uses one
// protocol.
func client(server Server, protocol string) (*http.Client, error) {
	config := server.Config()
	config.DisableCompression = true // the requests have Accept-Encoding headers of their own
	config.UserAgent = ""
	config.NextProtos = []string{protocol}
	return rest.HTTPClientFor(config)
}

// Close ends the idle connections.
func (s *Side) Close() {
	s.http1.CloseIdleConnections()
	s.http2.CloseIdleConnections()
}

// Ask sends a request and reads the whole answer. After a 429 it sends the request again
// when Retry-After is over: a server may protect itself.
func (s *Side) Ask(ctx context.Context, r Request) Answer {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for attempt := 0; ; attempt++ {
		answer := s.ask(ctx, r)
		if answer.Status != http.StatusTooManyRequests || attempt == throttles {
			return answer
		}
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		select {
		case <-ctx.Done():
			return answer
		case <-time.After(time.Duration(max(1, seconds)) * time.Second):
		}
	}
}

func (s *Side) ask(ctx context.Context, r Request) Answer {
	response, err := s.open(ctx, r)
	if err != nil {
		return Answer{Incomplete: err.Error()}
	}
	defer response.Body.Close()
	answer := Answer{Status: response.StatusCode, Header: response.Header}
	body, err := decoded(response)
	if err == nil {
		answer.Body, err = io.ReadAll(io.LimitReader(body, maxBody))
	}
	if err != nil {
		answer.Incomplete = err.Error()
	}
	if r.Stream && answer.Status == http.StatusOK {
		answer.Events, err = events(mediaType(response.Header), answer.Body)
		answer.Streamed = err == nil
	}
	return answer
}

// open sends a request and returns when the answer has begun.
func (s *Side) open(ctx context.Context, r Request) (*http.Response, error) {
	request, err := r.on(ctx, s.host)
	if err != nil {
		return nil, err
	}
	if r.HTTP1 {
		return s.http1.Do(request)
	}
	return s.http2.Do(request)
}

// decoded reads the body without its Content-Encoding.
func decoded(response *http.Response) (io.Reader, error) {
	switch encoding := response.Header.Get("Content-Encoding"); encoding {
	case "":
		return response.Body, nil
	case "gzip":
		body, err := gzip.NewReader(response.Body)
		if err == io.EOF { // a stream that ended before its first event
			return http.NoBody, nil
		}
		return body, err
	default:
		return nil, fmt.Errorf("unasked Content-Encoding %q", encoding)
	}
}

func mediaType(h http.Header) string {
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return media
}
