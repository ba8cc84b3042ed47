package serving

import (
	"context"
	"io"
	"log"
	"net/http"
	"time"
)

// ServeMetrics serves plain HTTP on the address of --metrics-bind-address, unless it is 0, until stop is called.
func ServeMetrics(address string, handler http.Handler) (stop func(), err error) {
	if address == "0" || address == "" {
		return func() {}, nil
	}
	listener, err := Listen("--metrics-bind-address", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		<-ended
	}, nil
}
