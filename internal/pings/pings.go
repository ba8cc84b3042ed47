// Package pings makes clients of an API server notice connections that are dead.
package pings

import (
	"os"
	"strings"

	"k8s.io/client-go/rest"
)

// Config returns cfg, or a copy of it whose transport pings its HTTP/2 connections. Without pings, a connection to a
// server that froze, or that a balancer has dropped, receives each later request: a request that ends by its timeout
// leaves it in use.
//
// client-go's transports ping. Without settings of TLS, as for a server whose certificate the system trusts, client-go
// uses net/http's default transport, which does not.
func Config(cfg *rest.Config) *rest.Config {
	if cfg.Transport != nil || !strings.HasPrefix(cfg.Host, "https://") || os.Getenv("DISABLE_HTTP2") != "" {
		return cfg
	}
	if settings, err := rest.TLSConfigFor(cfg); settings != nil || err != nil {
		return cfg // an error is that of the transport, too
	}
	cfg = rest.CopyConfig(cfg)
	cfg.NextProtos = []string{"h2", "http/1.1"} // the default, as a setting
	return cfg
}
