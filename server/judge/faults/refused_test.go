package faults

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
)

// A watch that upstream refuses, or whose encoding has no frames that are known, is forwarded without the faults of
// watches, and the transcript has none.
func TestWatchWithoutFrames(t *testing.T) {
	answers := map[string]struct {
		code        int
		media, body string
	}{
		"refused": {403, "application/json", `{"kind":"Status","code":403}`},
		"CBOR":    {200, "application/cbor-seq", "event event event"},
	}
	bothProtocols(t, func(t *testing.T, http1 bool) {
		for name, answer := range answers {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", answer.media)
				w.WriteHeader(answer.code)
				_, _ = io.WriteString(w, answer.body)
			}))
			t.Cleanup(server.Close)
			upstream := &rest.Config{Host: server.URL,
				TLSClientConfig: rest.TLSClientConfig{CAData: certificatePEM(server.Certificate())}}
			for _, rule := range []string{"{fault: error-event, status: Expired}", "{fault: end}", "{fault: tear}",
				"{fault: skip}", "{fault: repeat}", "{fault: error-event, status: Expired, after: {bytes: 3}}"} {
				p := New(t, upstream, parsePlan(t, http1, "- "+rule))
				code, body, err := newClient(t, p, http1).read(t, watchPods)
				if code != answer.code || body != answer.body || err != nil {
					t.Errorf("%s, %s: got %d %q, %v", name, rule, code, body, err)
				}
				if injected := p.Transcript()[0].Faults; len(injected) > 0 {
					t.Errorf("%s, %s: the transcript has %v", name, rule, injected)
				}
			}
		}
	})
}
