package controlplane

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// authority is the certificate authority that a kubeconfig pins. It outlives the serving
// certificates, which are made anew at each start for the address of the day.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// pem is the certificate as clients want it.
	pem []byte
}

const (
	authorityLife   = 10 * 365 * 24 * time.Hour
	certificateLife = 2 * 365 * 24 * time.Hour
	// clockSkew is how much a client's clock may be behind.
	clockSkew = time.Hour
)

// loadAuthority reads the authority of the folder, or founds it.
func loadAuthority(d *dataDir) (*authority, error) {
	content, err := d.readOrCreate("ca.pem", newAuthority)
	if err != nil {
		return nil, fmt.Errorf("cannot keep a certificate authority in %s: %w", d.path, reason(err))
	}
	a, err := parseAuthority(content)
	if err != nil {
		return nil, fmt.Errorf("the certificate authority %s is damaged (%w): restore the file, or remove it to get a new one and a new kubeconfig", d.file("ca.pem"), err)
	}
	return a, nil
}

// newAuthority is a key and a self-signed certificate, PEM.
func newAuthority() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "keepwatch-ca"},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return encodePair(der, key)
}

func parseAuthority(content []byte) (*authority, error) {
	certBlock, rest := pem.Decode(content)
	keyBlock, _ := pem.Decode(rest)
	if certBlock == nil || keyBlock == nil {
		return nil, errors.New("it has no certificate and key")
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: pem.EncodeToMemory(certBlock)}, nil
}

// issue makes a serving certificate and key, PEM, for the local names and for host.
func (a *authority) issue(host string) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: "keepwatch"},
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(certificateLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if name, err := os.Hostname(); err == nil {
		template.DNSNames = append(template.DNSNames, name)
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = append(template.IPAddresses, ip)
	} else if host != "" {
		template.DNSNames = append(template.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	pair, err := encodePair(der, private)
	if err != nil {
		return nil, nil, err
	}
	block, rest := pem.Decode(pair)
	return pem.EncodeToMemory(block), rest, nil
}

// encodePair is a certificate followed by its key, PEM.
func encodePair(der []byte, key *ecdsa.PrivateKey) ([]byte, error) {
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
		return nil, err
	}
	if err := pem.Encode(&out, &pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func serial() *big.Int {
	n := make([]byte, 16)
	rand.Read(n)
	n[0] &= 0x7f // positive, at most 20 bytes (RFC 5280)
	return new(big.Int).SetBytes(n)
}

// loadToken is the token that was given, which replaces the kept one, or the kept one, or a new one.
func loadToken(d *dataDir, given string) (string, error) {
	if given != "" {
		if err := writeFile(d.file("token"), []byte(given)); err != nil {
			return "", fmt.Errorf("cannot keep the token in %s: %w", d.path, reason(err))
		}
		return given, nil
	}
	content, err := d.readOrCreate("token", func() ([]byte, error) { return []byte(newToken()), nil })
	if err != nil {
		return "", fmt.Errorf("cannot keep the token in %s: %w", d.path, reason(err))
	}
	token := string(bytes.TrimSpace(content))
	if token == "" {
		return "", fmt.Errorf("the token file %s is empty: remove it to get a new token", d.file("token"))
	}
	if err := checkToken(token); err != nil {
		return "", fmt.Errorf("the token file %s: %w", d.file("token"), err)
	}
	return token, nil
}

// checkToken refuses a token that cannot be sent in a header: every request would be answered 401.
func checkToken(token string) error {
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return fmt.Errorf("a token cannot have the character %q: give letters, digits and punctuation without spaces or line ends", rune(c))
		}
	}
	return nil
}

// newToken is 32 random bytes, in hexadecimal.
func newToken() string {
	secret := make([]byte, 32)
	rand.Read(secret)
	return hex.EncodeToString(secret)
}
