package pings_test

import (
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/pings"
)

// Only net/http's default transport does not ping. client-go uses one transport for equal configurations.
func TestConfig(t *testing.T) {
	custom := &http.Transport{}
	for name, cfg := range map[string]*rest.Config{
		"trusted":   {Host: "https://example.com"},
		"insecure":  {Host: "https://example.com", TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		"http/1.1":  {Host: "https://example.com", TLSClientConfig: rest.TLSClientConfig{NextProtos: []string{"http/1.1"}}},
		"transport": {Host: "https://example.com", Transport: custom},
	} {
		var all []http.RoundTripper
		for range 2 {
			cfg := rest.CopyConfig(cfg)
			transport, err := rest.TransportFor(pings.Config(cfg))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, transport)
		}
		if all[0] == http.DefaultTransport || all[0] != all[1] || (all[0] == custom) != (cfg.Transport == custom) {
			t.Errorf("%s: %T, and again %T", name, all[0], all[1])
		}
	}
}
