package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
)

// ParseRequest returns the request in a PEM block. It does not check the signature.
func ParseRequest(content []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(content)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
