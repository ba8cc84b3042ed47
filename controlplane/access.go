package controlplane

import (
	"fmt"
	"net"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/rest"
)

// access is who may come in, and how the server proves itself to them.
type access struct {
	url       string
	token     string
	authority *authority
	cert      dynamiccertificates.CertKeyContentProvider
	// loopback is the token of the server's own clients; it never leaves the process.
	loopback string
}

func newAccess(address net.Addr, d *dataDir, token string) (*access, error) {
	ca, err := loadAuthority(d)
	if err != nil {
		return nil, err
	}
	a := &access{authority: ca, loopback: newToken()}
	if a.token, err = loadToken(d, token); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address.String())
	if err != nil {
		return nil, err
	}
	cert, key, err := ca.issue(host)
	if err != nil {
		return nil, fmt.Errorf("cannot make a serving certificate: %w", err)
	}
	if a.cert, err = dynamiccertificates.NewStaticCertKeyContent("serving", cert, key); err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	a.url = "https://" + net.JoinHostPort(host, port)
	return a, nil
}

// client is for the token's user.
func (a *access) client() *rest.Config {
	return &rest.Config{
		Host:            a.url,
		BearerToken:     a.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: a.authority.pem},
		QPS:             -1,
	}
}

// own is for the server's own clients.
func (a *access) own() *rest.Config {
	config := a.client()
	config.BearerToken = a.loopback
	config.UserAgent = "keepwatch-controlplane"
	return config
}
