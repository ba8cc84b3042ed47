package main

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"
)

// proxyServing is the TLS of the proxy's listener. It reads the certificate again when its files change, and sends
// clients the authorities of their certificates as they are then.
type proxyServing struct {
	authority   []byte // of a self-signed certificate, for clients
	certificate dynamiccertificates.CertKeyContentProvider
	controller  *dynamiccertificates.DynamicServingCertificateController
}

// newServing returns the TLS of a listener on an address. clients may be nil.
func (o *proxyOptions) newServing(address net.Addr, clients dynamiccertificates.CAContentProvider) (*proxyServing, error) {
	s := &proxyServing{}
	var err error
	if o.certFile != "" {
		s.certificate, err = dynamiccertificates.NewDynamicServingContentFromFiles("serving-cert", o.certFile, o.keyFile)
	} else {
		s.certificate, err = s.selfSigned(address)
	}
	if err != nil {
		return nil, err
	}
	base := &tls.Config{
		// As an API server: a certificate is verified with the request, which then has an answer.
		ClientAuth: tls.RequestClientCert,
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
	}
	s.controller = dynamiccertificates.NewDynamicServingCertificateController(base, clients, s.certificate, nil, nil)
	s.certificate.AddListener(s.controller)
	if clients != nil {
		clients.AddListener(s.controller)
	}
	return s, s.controller.RunOnce()
}

// selfSigned makes a certificate for an address, which is its own authority.
func (s *proxyServing) selfSigned(address net.Addr) (dynamiccertificates.CertKeyContentProvider, error) {
	host, _, err := net.SplitHostPort(address.String())
	if err != nil {
		return nil, err
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"})
	if err != nil {
		return nil, err
	}
	s.authority = certificate
	return dynamiccertificates.NewStaticCertKeyContent("self-signed", certificate, key)
}

// listen returns a listener that serves with the newest certificate.
func (s *proxyServing) listen(on net.Listener) net.Listener {
	return tls.NewListener(on, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: s.controller.GetConfigForClient})
}

// run follows the files and the authorities until ctx ends.
func (s *proxyServing) run(ctx context.Context) {
	var running sync.WaitGroup
	if files, ok := s.certificate.(dynamiccertificates.ControllerRunner); ok {
		running.Go(func() { files.Run(ctx, 1) })
	}
	running.Go(func() { s.controller.Run(1, ctx.Done()) })
	running.Wait()
}
