package faults

import (
	"io"
	"net/http"
	"net/http/httputil"
	"time"
)

// isUpgrade reports whether a request wants another protocol on its connection, as
// WebSockets do.
func isUpgrade(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

// upgrade forwards such a request, and then bytes in both directions until either end
// closes its connection. Faults that need frames do not happen there.
func (x *exchange) upgrade() {
	proxy := httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(x.proxy.upstream) },
		Transport: x.proxy.transport,
		ModifyResponse: func(response *http.Response) error {
			x.record(func(e *Entry, _ time.Duration) { e.Code = response.StatusCode })
			if both, ok := response.Body.(io.ReadWriteCloser); ok {
				response.Body = tunnel{both, connectionOf(x.r)}
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { x.fail(err) },
	}
	proxy.ServeHTTP(x.w, x.r.WithContext(x.ctx))
}

// tunnel is the upstream's end of an upgraded connection. The client's ends with it.
type tunnel struct {
	io.ReadWriteCloser
	client io.Closer
}

func (t tunnel) Read(p []byte) (int, error) {
	n, err := t.ReadWriteCloser.Read(p)
	if err != nil && n == 0 {
		_ = t.client.Close()
	}
	return n, err
}
