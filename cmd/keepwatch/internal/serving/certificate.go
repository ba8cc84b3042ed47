package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"
)

// Certificate is the TLS of a listener. It reads the certificate again when its files change, and sends
// clients the authorities of their certificates as they are then.
type Certificate struct {
	Authority   []byte // of a certificate that is not in files
	certificate dynamiccertificates.CertKeyContentProvider
	controller  *dynamiccertificates.DynamicServingCertificateController
}

// NewCertificate returns the TLS of a listener on an address: with the certificate in files, or without them with one
// that the authority of own makes. clients may be nil.
func NewCertificate(certFile, keyFile string, address net.Addr, own *Credentials,
	clients dynamiccertificates.CAContentProvider) (*Certificate, error) {
	s := &Certificate{}
	var err error
	if certFile != "" {
		if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil { // in words that name the file
			return nil, fmt.Errorf("--tls-cert-file %s, --tls-private-key-file %s: %w", certFile, keyFile, err)
		}
		s.certificate, err = dynamiccertificates.NewDynamicServingContentFromFiles("serving-cert", certFile, keyFile)
	} else {
		s.certificate, err = own.certificate(address)
		s.Authority = own.authority.Cert
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

// Trusted returns what clients must trust, as PEM, or nothing if the system trusts the certificate.
func (s *Certificate) Trusted() []byte {
	if s.Authority != nil {
		return s.Authority
	}
	chain, _ := s.certificate.CurrentCertKeyContent()
	return authorityOf(chain)
}

// OnChange calls change when the certificate is another one.
func (s *Certificate) OnChange(change func()) { s.certificate.AddListener(changeListener(change)) }

type changeListener func()

// Enqueue is called by a provider of certificates.
func (l changeListener) Enqueue() { l() }

// authorityOf returns what clients must trust for a certificate, which those of its authorities may follow: nothing if
// the system trusts it, else the authorities, or the certificate itself if there are none.
func authorityOf(chain []byte) []byte {
	certificates, err := cert.ParseCertsPEM(chain)
	if err != nil {
		return nil
	}
	between, authorities := x509.NewCertPool(), []byte(nil)
	for _, c := range certificates {
		between.AddCert(c)
		if c.IsCA {
			authorities = append(authorities, encodeCertificate(c)...)
		}
	}
	if _, err := certificates[0].Verify(x509.VerifyOptions{Intermediates: between}); err == nil {
		return nil
	}
	if authorities == nil {
		return encodeCertificate(certificates[0])
	}
	return authorities
}

func encodeCertificate(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})
}

// listen returns a listener that serves with the newest certificate.
func (s *Certificate) listen(on net.Listener) net.Listener {
	return tls.NewListener(on, &tls.Config{MinVersion: tls.VersionTLS12,
		GetConfigForClient: s.controller.GetConfigForClient})
}

// run follows the files and the authorities until ctx ends.
func (s *Certificate) run(ctx context.Context) {
	var running sync.WaitGroup
	if files, ok := s.certificate.(dynamiccertificates.ControllerRunner); ok {
		running.Go(func() { files.Run(ctx, 1) })
	}
	running.Go(func() { s.controller.Run(1, ctx.Done()) })
	running.Wait()
}
