package audit_test

import (
	"bytes"
	"encoding/json"
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

// proxy is in front of a real server.
type proxy struct {
	intercept func(w http.ResponseWriter, r *http.Request) bool // reports whether it has answered; nil: never
	items     func(r *http.Request, items []any) []any          // changes the items of a list; nil: unchanged
}

// serve runs the proxy until the end of the test.
func (p proxy) serve(t *testing.T, server *rest.Config) *rest.Config {
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
		Transport: transport, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Accept-Encoding")
		},
		ModifyResponse: func(response *http.Response) error {
			if response.StatusCode != http.StatusOK || p.items == nil {
				return nil
			}
			body, err := io.ReadAll(response.Body)
			if err != nil {
				return err
			}
			body = p.change(response.Request, body)
			response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			response.Header.Set("Content-Length", fmt.Sprint(len(body)))
			return nil
		},
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.intercept == nil || !p.intercept(w, r) {
			reverse.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.Close)
	return &rest.Config{Host: front.URL}
}

func (p proxy) change(r *http.Request, body []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var l map[string]any
	if decoder.Decode(&l) != nil {
		return body
	}
	items, ok := l["items"].([]any)
	if !ok {
		return body
	}
	l["items"] = p.items(r, items)
	changed, _ := json.Marshal(l)
	return changed
}

// refuse answers with a Status.
func refuse(w http.ResponseWriter, code int, reason, message, details string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"details":{%s},"code":%d}`, message, reason, details, code)
}

func isNamespaces(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/namespaces") }

// metadataOf returns the metadata of an item.
func metadataOf(item any) map[string]any {
	return item.(map[string]any)["metadata"].(map[string]any)
}

// statusServer answers each request with a Status.
func statusServer(t *testing.T, code int, reason, message string) *rest.Config {
	return proxy{intercept: func(w http.ResponseWriter, _ *http.Request) bool {
		refuse(w, code, reason, message, "")
		return true
	}}.serve(t, api)
}
