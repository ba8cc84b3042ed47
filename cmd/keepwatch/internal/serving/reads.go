package serving

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// endTimeout bounds the wait for the requests that are open at the end.
const endTimeout = 5 * time.Second

// Handler answers requests while Run runs; its watches end with that.
type Handler interface {
	http.Handler
	Run(ctx context.Context)
}

// Reads serves until ctx is done or the listener fails.
func Reads(ctx context.Context, reads Handler, serving *Certificate, listener net.Listener,
	stderr io.Writer) error {
	running, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { reads.Run(running) })
	following.Go(func() { serving.run(running) })
	defer following.Wait()
	defer stop()
	s := newServer(reads, stderr)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(serving.listen(listener)) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	stop() // watches end
	closing, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if s.Shutdown(closing) != nil {
		_ = s.Close()
	}
	<-ended
	return nil
}

// newServer returns a server that reports panics of its handler.
func newServer(handler http.Handler, stderr io.Writer) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: 32 * time.Second, IdleTimeout: 90 * time.Second, // as k8s.io/apiserver
		// The write deadline of a stream of HTTP/2 ends the stream, which waits for the connection: a client that is frozen,
		// and takes nothing from it, keeps all its streams.
		HTTP2:    &http.HTTP2Config{WriteByteTimeout: time.Minute},
		ErrorLog: log.New(panicWriter{stderr}, "", 0),
	}
}

// panicWriter writes reports of net/http about panics to another writer. It discards the others, which are about
// mistakes of clients: failed handshakes, invalid requests.
type panicWriter struct{ out io.Writer }

func (w panicWriter) Write(report []byte) (int, error) {
	if bytes.HasPrefix(report, []byte("http: panic serving ")) ||
		bytes.HasPrefix(report, []byte("http2: panic serving ")) {
		return w.out.Write(report)
	}
	return len(report), nil
}
