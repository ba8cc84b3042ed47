package proxy_test

import (
	"context"
	"log"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/proxy"
)

// A proxy in a cluster, with the identity of its service account. TLS is for its clients.
func Example() {
	server, err := rest.InClusterConfig()
	if err != nil {
		log.Print(err)
		return
	}
	p, err := proxy.New(proxy.Config{Server: server})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go p.Run(ctx)
	log.Fatal(http.ListenAndServeTLS(":7443", "tls.crt", "tls.key", p))
}
