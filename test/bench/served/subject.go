package served

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/test/bench/wire"
	"github.com/keepwatch/keepwatch/test/peer"
)

// subject is a server that is measured.
type subject struct {
	by       Contender
	runs     int // of which the median counts
	endpoint wire.Endpoint
	// process is the server's, which is another one after a restart.
	process func() *peer.Process
}

// Server is an API server that is measured.
type Server struct {
	subject
	*peer.Server
}

// NewServer returns the server as a contender. Each figure is the median of so many runs.
func NewServer(by Contender, server *peer.Server, runs int) (*Server, error) {
	config := server.Config()
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	return &Server{Server: server, subject: subject{
		by: by, runs: runs, process: server.Process,
		endpoint: wire.Endpoint{Address: strings.TrimPrefix(config.Host, "https://"), TLS: tls, Token: config.BearerToken},
	}}, nil
}

// link is a connection, and the goroutine that reads it.
type link struct {
	*wire.Conn
	ended chan struct{}
}

// dial connects; the caller hangs up.
func (s *subject) dial(ctx context.Context) (*link, error) {
	conn, err := wire.Dial(ctx, s.endpoint)
	if err != nil {
		return nil, err
	}
	l := &link{conn, make(chan struct{})}
	go func() {
		defer close(l.ended)
		_ = conn.Run() // each answer has the cause
	}()
	return l, nil
}

// close ends the connection. No data arrives afterwards.
func (l *link) close() {
	l.Close()
	<-l.ended
}

// fetch reads an answer to its end. A cut-off answer is an error.
func (l *link) fetch(ctx context.Context, r wire.Request) (*wire.Answer, error) {
	answer, err := l.Get(r)
	if err != nil {
		return nil, err
	}
	status, err := answer.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", r.Path, err)
	}
	if err := answer.Wait(ctx); err != nil {
		return nil, fmt.Errorf("GET %s: %w", r.Path, err)
	}
	if status != "200" {
		return nil, fmt.Errorf("GET %s answers %s", r.Path, status)
	}
	return answer, nil
}

const (
	asJSON     = "application/json"
	asTable    = "application/json;as=Table;g=meta.k8s.io;v=v1"
	asProtobuf = "application/vnd.kubernetes.protobuf"
	asWatch    = ";stream=watch"
)

var revisionField = regexp.MustCompile(`"resourceVersion":"(\d+)"`)

// newest returns a revision that includes all writes, from the server.
func (s *subject) newest(ctx context.Context) (string, error) {
	l, err := s.dial(ctx)
	if err != nil {
		return "", err
	}
	defer l.close()
	return l.newest(ctx)
}

// newest lists a namespace that does not exist.
func (l *link) newest(ctx context.Context) (string, error) {
	var text []byte
	_, err := l.fetch(ctx, wire.Request{Path: missingNamespace, Accept: asJSON, Data: func(p []byte) {
		text = append(text, p...)
	}})
	if err != nil {
		return "", err
	}
	revision := revisionField.FindSubmatch(text)
	if revision == nil {
		return "", fmt.Errorf("GET %s answers %.200q", missingNamespace, text)
	}
	return string(revision[1]), nil
}

const missingNamespace = "/api/v1/namespaces/nobody/pods"

// retryInterval is how long a client waits that was refused.
const retryInterval = 50 * time.Millisecond
