package serving

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/controlplane/internal/datadir"
)

// The files of a data folder that outlive a restart.
const (
	authorityFile = "ca.pem"
	tokenFile     = "token"
)

// Credentials authenticate the server to its clients, and the clients to the server.
type Credentials struct {
	url       string
	authority *authority
	cert      dynamiccertificates.CertKeyContentProvider
	// token is the administrator's.
	token string
	// loopback is the token of the server's own clients; it never leaves the process.
	loopback string
}

// HasCredentials reports whether credentials are stored in d. LoadCredentials stores them.
func HasCredentials(d *datadir.Dir) bool {
	for _, name := range []string{tokenFile, authorityFile} {
		if _, err := os.Stat(d.File(name)); err != nil {
			return false // also if a user has put a token into a new folder
		}
	}
	return true
}

// LoadCredentials reads the certificate authority and the token in d, or creates them, and issues a
// certificate for a listener's address. A given token replaces the stored one.
func LoadCredentials(address net.Addr, d *datadir.Dir, token string) (*Credentials, error) {
	ca, err := loadAuthority(d)
	if err != nil {
		return nil, err
	}
	c := &Credentials{authority: ca, loopback: newToken()}
	if c.token, err = loadToken(d, token); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address.String())
	if err != nil {
		return nil, err
	}
	cert, key, err := ca.issue(host)
	if err != nil {
		return nil, fmt.Errorf("cannot issue a serving certificate: %w", err)
	}
	if c.cert, err = dynamiccertificates.NewStaticCertKeyContent("serving", cert, key); err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	c.url = "https://" + net.JoinHostPort(host, port)
	return c, nil
}

// ClientConfig returns the administrator's client configuration, without a limit on the rate of
// requests.
func (c *Credentials) ClientConfig() *rest.Config {
	return &rest.Config{
		Host:            c.url,
		BearerToken:     c.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.pem},
		QPS:             -1,
	}
}

// LoopbackConfig returns the configuration of the server's own clients.
func (c *Credentials) LoopbackConfig() *rest.Config {
	config := c.ClientConfig()
	config.BearerToken = c.loopback
	config.UserAgent = "keepwatch-controlplane"
	return config
}

// URL returns the address for clients on this machine.
func (c *Credentials) URL() string { return c.url }

// SecureServing returns how to serve a listener's connections. k8s.io/apiserver closes a connection whose
// handshake or whose request header takes more than 32 s, and one that is idle for 90 s.
func (c *Credentials) SecureServing(listener net.Listener) *genericapiserver.SecureServingInfo {
	return &genericapiserver.SecureServingInfo{Listener: listener, Cert: c.cert, CipherSuites: ciphers}
}

// ciphers are the suites of TLS 1.2 with authenticated encryption; Go's defaults include others with
// CBC. Those of TLS 1.3 cannot be configured.
var ciphers = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}
