package serving

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/datadir"
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
	// own is the certificate that the authority has issued, for the server's own clients: cert may be a given one.
	own dynamiccertificates.SNICertKeyContentProvider
	// trusted is the certificates that clients trust: the authority's, and a given serving certificate.
	trusted []byte
	// clients is the certificate authorities that may sign certificates of clients.
	clients dynamiccertificates.CAContentProvider
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

// Given are credentials that a user brings. Each may be empty.
type Given struct {
	// Token replaces the stored one.
	Token string
	// ClientCAFile has certificate authorities, PEM, that may sign certificates of clients, besides the own one.
	ClientCAFile string
	// CertFile and KeyFile, PEM, are served instead of a certificate of the own authority.
	CertFile, KeyFile string
}

// loopbackName is the name by which the server's own clients request its own certificate.
const loopbackName = "keepwatch-loopback"

// LoadCredentials reads the certificate authority and the token in d, or creates them, and issues a
// certificate for a listener's address, unless one is given.
func LoadCredentials(address net.Addr, d *datadir.Dir, given Given) (*Credentials, error) {
	ca, err := loadAuthority(d)
	if err != nil {
		return nil, err
	}
	c := &Credentials{authority: ca, loopback: newToken()}
	if c.token, err = loadToken(d, given.Token); err != nil {
		return nil, err
	}
	if c.clients, err = clientAuthorities(ca, given.ClientCAFile); err != nil {
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
	if c.own, err = dynamiccertificates.NewStaticSNICertKeyContent("loopback", cert, key, loopbackName); err != nil {
		return nil, err
	}
	if c.cert, err = given.serving(cert, key); err != nil {
		return nil, err
	}
	c.trusted = slices.Clone(ca.pem)
	if served, _ := c.cert.CurrentCertKeyContent(); given.CertFile != "" {
		c.trusted = append(c.trusted, served...)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	c.url = "https://" + net.JoinHostPort(host, port)
	return c, nil
}

// serving returns the given certificate, or else the own one.
func (g Given) serving(cert, key []byte) (dynamiccertificates.CertKeyContentProvider, error) {
	if g.CertFile != "" {
		var err error
		if cert, err = os.ReadFile(g.CertFile); err != nil {
			return nil, fmt.Errorf("cannot read the serving certificate %s: %w", g.CertFile, datadir.Cause(err))
		}
		if key, err = os.ReadFile(g.KeyFile); err != nil {
			return nil, fmt.Errorf("cannot read the key %s of the serving certificate: %w", g.KeyFile, datadir.Cause(err))
		}
	}
	content, err := dynamiccertificates.NewStaticCertKeyContent("serving", cert, key)
	if err != nil {
		return nil, fmt.Errorf("the serving certificate %s does not fit its key %s: %w", g.CertFile, g.KeyFile, err)
	}
	return content, nil
}

// clientAuthorities returns the own authority, and those in a file.
func clientAuthorities(own *authority, file string) (dynamiccertificates.CAContentProvider, error) {
	bundle := slices.Clone(own.pem)
	if file != "" {
		others, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("cannot read the certificate authority of clients %s: %w", file, datadir.Cause(err))
		}
		bundle = append(bundle, others...)
	}
	clients, err := dynamiccertificates.NewStaticCAContent("client-ca", bundle)
	if err != nil {
		return nil, fmt.Errorf("the certificate authority of clients %s has no certificate: %w", file, err)
	}
	return clients, nil
}

// UserConfig returns the client configuration of a user with a client certificate, without a limit on the rate
// of requests.
func (c *Credentials) UserConfig(name string, groups []string) (*rest.Config, error) {
	config := c.ClientConfig()
	config.BearerToken = ""
	var err error
	config.CertData, config.KeyData, err = c.authority.issueClient(name, groups)
	return config, err
}

// IssueClient returns a client certificate, PEM, for the key and the names of a request. It is valid from now, for life
// at most.
func (c *Credentials) IssueClient(request *x509.CertificateRequest, usage x509.KeyUsage,
	life time.Duration) ([]byte, error) {
	return c.authority.issueRequested(request, usage, life)
}

// ClientConfig returns the administrator's client configuration, without a limit on the rate of
// requests.
func (c *Credentials) ClientConfig() *rest.Config {
	return &rest.Config{
		Host:            c.url,
		BearerToken:     c.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.trusted},
		QPS:             -1,
	}
}

// LoopbackConfig returns the configuration of the server's own clients, which use no proxy of the environment: it may
// not know the way back, and would see what they send.
func (c *Credentials) LoopbackConfig() *rest.Config {
	config := c.ClientConfig()
	if target, err := url.Parse(c.url); err == nil {
		if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: target}); proxy != nil || err != nil {
			config.Proxy = http.ProxyURL(nil) // only then: client-go shares no connections of a configuration with a function
		}
	}
	config.BearerToken = c.loopback
	config.ServerName = loopbackName
	config.UserAgent = "keepwatch-controlplane"
	return config
}

// URL returns the address for clients on this machine.
func (c *Credentials) URL() string { return c.url }

// SecureServing returns how to serve a listener's connections. k8s.io/apiserver closes a connection whose
// handshake or whose request header takes more than 32 s, and one that is idle for 90 s.
func (c *Credentials) SecureServing(listener net.Listener) *genericapiserver.SecureServingInfo {
	return &genericapiserver.SecureServingInfo{
		Listener: listener, Cert: c.cert, SNICerts: []dynamiccertificates.SNICertKeyContentProvider{c.own},
		ClientCA: c.clients, CipherSuites: ciphers,
	}
}

// ciphers are the suites of TLS 1.2 with authenticated encryption; Go's defaults include others with
// CBC. Those of TLS 1.3 cannot be configured.
var ciphers = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}
