package judgetest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// Proxy is a proxy in front of a real API server. Its functions are called concurrently; nil changes nothing. Answers
// that may be changed are not compressed.
type Proxy struct {
	// Intercept reports whether it has answered a request itself.
	Intercept func(w http.ResponseWriter, r *http.Request) bool
	// Request changes a request and its parameters.
	Request func(q url.Values, r *http.Request)
	// Answer returns the new body of an answer with status 200 or 201 that is not a watch.
	Answer func(r *http.Request, body []byte) []byte
	// Events returns the new body of a watch in JSON.
	Events func(body io.ReadCloser) io.ReadCloser
}

// Serve runs the proxy until the end of the test, and returns the configuration of its clients, which
// act as the user of the server's configuration.
func (p Proxy) Serve(t *testing.T, server *rest.Config) *rest.Config {
	t.Helper()
	transport, err := rest.TransportFor(server)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(server.Host)
	if err != nil {
		t.Fatal(err)
	}
	reverse := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		Rewrite:        func(r *httputil.ProxyRequest) { p.rewrite(r, target) },
		ModifyResponse: p.modify,
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.Intercept == nil || !p.Intercept(w, r) {
			reverse.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.Close)
	return &rest.Config{Host: front.URL}
}

func (p Proxy) rewrite(r *httputil.ProxyRequest, target *url.URL) {
	r.SetURL(target)
	if p.Answer != nil || p.Events != nil {
		r.Out.Header.Del("Accept-Encoding")
	}
	if p.Request != nil {
		q := r.Out.URL.Query()
		p.Request(q, r.Out)
		r.Out.URL.RawQuery = q.Encode()
	}
}

func (p Proxy) modify(response *http.Response) error {
	isWatch := response.Request.URL.Query().Get("watch") == "true"
	switch {
	case response.StatusCode != http.StatusOK && response.StatusCode != http.StatusCreated:
	case isWatch && p.Events != nil && strings.HasPrefix(response.Header.Get("Content-Type"), "application/json"):
		response.Body = p.Events(response.Body)
	case !isWatch && p.Answer != nil:
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		body = p.Answer(response.Request, body)
		response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		response.Header.Set("Content-Length", fmt.Sprint(len(body)))
	}
	return nil
}

// Refuse answers a request with a Status. The details are the fields of its details in JSON, and may be empty.
func Refuse(w http.ResponseWriter, code int, reason, message, details string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w,
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"details":{%s},"code":%d}`, message, reason, details, code)
}
