package discovery

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// answering answers requests without a network.
type answering func(*http.Request) (int, string)

func (a answering) RoundTrip(q *http.Request) (*http.Response, error) {
	code, body := a(q)
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// A server that starts has no namespace kube-system yet, and denies to read it. Only if that lasts, its address is the
// cluster's identity: the index on disk of a cluster with another identity is dropped.
func TestClusterOfAStartingServer(t *testing.T) {
	const found = `{"metadata":{"uid":"1234"}}`
	address := &url.URL{Scheme: "https", Host: "server"}
	for name, test := range map[string]struct {
		code  int
		until time.Duration
		want  string
	}{
		"not there yet":   {http.StatusNotFound, unidentifiedFor / 2, "1234"},
		"not there":       {http.StatusNotFound, time.Hour, address.String()},
		"not allowed yet": {http.StatusForbidden, unidentifiedFor / 2, "1234"},
		"not allowed":     {http.StatusForbidden, time.Hour, address.String()},
		"down":            {http.StatusServiceUnavailable, time.Hour, "1234"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				d := Server{&http.Client{Transport: answering(func(*http.Request) (int, string) {
					if time.Since(begun) < test.until {
						return test.code, ""
					}
					return http.StatusOK, found
				})}, address}
				if got := d.AwaitCluster(t.Context()); got != test.want {
					t.Errorf("got %s after %v, want %s", got, time.Since(begun), test.want)
				}
			})
		})
	}
}
