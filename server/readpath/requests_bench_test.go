package readpath

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BenchmarkRequests answers requests for 2,000 pods of 2 KB, without a connection. It reports the
// CPU time of the process for each answer.
func BenchmarkRequests(b *testing.B) {
	r := newRig(b, pods, options{})
	var first, last metav1.Object
	for i := range 2000 {
		last = r.create(fmt.Sprint("ns", i%10), fmt.Sprintf("o%04d", i), withLabel("l", fmt.Sprint(i%100)),
			withNote(strings.Repeat("x", 2000)))
		if first == nil {
			first = last
		}
	}
	r.waitFor(last)
	for _, q := range []struct {
		name, path string
		header     http.Header
	}{
		{"get", r.path("ns0") + "/o0000", accept("application/json")},
		{"list=json", r.path("") + "?resourceVersion=0", accept("application/json")},
		{"list=protobuf", r.path("") + "?resourceVersion=0", accept("application/vnd.kubernetes.protobuf")},
		{"list=gzip", r.path("") + "?resourceVersion=0", accept("application/json", "Accept-Encoding", "gzip")},
		{"list=consistent", r.path("ns0") + "?limit=100", accept("application/vnd.kubernetes.protobuf")},
		{"list=selector", r.path("") + "?resourceVersion=0&labelSelector=l%3D7", accept("application/json")},
		{"watch=state", r.path("") + "?watch=1&resourceVersion=0", accept("application/json")},
		{"watch=history", r.path("") + "?watch=1&resourceVersion=" + first.GetResourceVersion(), accept("application/json")},
	} {
		b.Run(q.name, func(b *testing.B) {
			r.measure(b, q.path, q.header)
		})
	}
}

// measure answers a request repeatedly, a watch until it has sent all events.
func (r *rig) measure(b *testing.B, path string, header http.Header) {
	answer := func() {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		q := must(http.NewRequestWithContext(ctx, http.MethodGet, path, nil))(b)
		q.Header = header
		to := &watchReader{header: http.Header{}, whole: cancel}
		r.handler.ServeHTTP(to, r.withInfo(q))
		if to.bytes == 0 || r.delegated.Load() > 0 {
			b.Fatal("there is no response, or it was delegated")
		}
	}
	answer() // it caches encodings
	began := cpuTime(b)
	for b.Loop() {
		answer()
	}
	b.ReportMetric(float64(cpuTime(b)-began)/float64(b.N), "cpu-ns/op")
}

// watchReader receives a response, and calls whole when a watch has sent all its events.
type watchReader struct {
	header http.Header
	bytes  int
	whole  func()
}

func (d *watchReader) Header() http.Header { return d.header }
func (d *watchReader) WriteHeader(int)     {}
func (d *watchReader) Write(p []byte) (int, error) {
	d.bytes += len(p)
	return len(p), nil
}

func (d *watchReader) FlushError() error {
	if d.bytes > 0 {
		d.whole()
	}
	return nil
}
