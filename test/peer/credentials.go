package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// credentials are the files a kube-apiserver is started with.
type credentials struct {
	cert, key  string // PEM files of the serving certificate, which is its own authority
	serviceKey string // PEM file of the key that signs service accounts' tokens
	tokens     string // CSV file for --token-auth-file
	token      string // of a user in system:masters
	ca         []byte // PEM
}

func newCredentials(dir string) (*credentials, error) {
	c := &credentials{
		cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key"),
		serviceKey: filepath.Join(dir, "service-account.key"),
		tokens:     filepath.Join(dir, "tokens.csv"),
		token:      rand.Text(),
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	if c.ca, err = selfSigned(key); err != nil {
		return nil, err
	}
	_, servicePEM, err := newKey()
	if err != nil {
		return nil, err
	}
	for file, text := range map[string][]byte{
		c.cert: c.ca, c.key: keyPEM, c.serviceKey: servicePEM,
		c.tokens: fmt.Appendf(nil, "%s,admin,admin,system:masters\n", c.token),
	} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

// selfSigned makes a certificate for 127.0.0.1, in PEM.
func selfSigned(key *ecdsa.PrivateKey) ([]byte, error) {
	now := time.Now()
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "keepwatch test"},
		NotBefore:    now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:        true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

// WriteKubeconfig writes a kubeconfig that reaches what config reaches, with
// the same token or client certificate, for programs that take a file.
func WriteKubeconfig(file string, config *rest.Config) error {
	const name = "test"
	k := api.NewConfig()
	k.Clusters[name] = &api.Cluster{
		Server:                   config.Host,
		CertificateAuthority:     config.CAFile,
		CertificateAuthorityData: config.CAData,
	}
	k.AuthInfos[name] = &api.AuthInfo{
		Token:                 config.BearerToken,
		ClientCertificate:     config.CertFile,
		ClientCertificateData: config.CertData,
		ClientKey:             config.KeyFile,
		ClientKeyData:         config.KeyData,
	}
	k.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	return clientcmd.WriteToFile(*k, file)
}
