package tokens

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/client-go/util/keyutil"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/datadir"
)

// keyFile is the key in a data folder that signs tokens.
const keyFile = "service-account.key"

// algorithms are those of kube-apiserver's tokens. Tokens that are signed by others are not valid.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512}

// publicKey verifies tokens.
type publicKey struct {
	// id is in the header of a token that the key verifies. It does not contain the key.
	id        string
	algorithm jose.SignatureAlgorithm
	key       crypto.PublicKey
}

// newPublicKey fails for a key of another type than kube-apiserver supports.
func newPublicKey(key crypto.PublicKey) (publicKey, error) {
	algorithm, err := algorithmOf(key)
	if err != nil {
		return publicKey{}, err
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return publicKey{}, err
	}
	sum := sha256.Sum256(der)
	return publicKey{base64.RawURLEncoding.EncodeToString(sum[:]), algorithm, key}, nil
}

func algorithmOf(key crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return jose.RS256, nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return jose.ES256, nil
		case elliptic.P384():
			return jose.ES384, nil
		case elliptic.P521():
			return jose.ES512, nil
		}
		return "", errors.New("its curve is not supported: give a key of the curve P-256, P-384 or P-521")
	}
	return "", fmt.Errorf("a %T is not supported: give an RSA or ECDSA key", key)
}

// loadSigningKey reads the private key in a file, or without a file the one in d, which it creates if there is none.
func loadSigningKey(d *datadir.Dir, file string) (crypto.Signer, error) {
	var content []byte
	var err error
	if file == "" {
		file = d.File(keyFile)
		content, err = d.ReadOrCreate(keyFile, newSigningKey)
	} else {
		content, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the signing key of service accounts %s: %w", file, datadir.Cause(err))
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(content)
	if err != nil {
		return nil, fmt.Errorf(
			"the signing key of service accounts %s has no private key: give a PEM file with an RSA or ECDSA key", file)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("the signing key of service accounts %s: a %T is not supported: give an RSA or ECDSA key",
			file, parsed)
	}
	return key, nil
}

// newSigningKey returns a new private key, PEM. It is ECDSA, which is made in microseconds; an RSA key takes some
// tenths of a second.
func newSigningKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = pem.Encode(&out, &pem.Block{Type: keyutil.ECPrivateKeyBlockType, Bytes: der})
	return out.Bytes(), err
}

// loadPublicKeys returns the public keys in files, also those of private keys, each once.
func loadPublicKeys(files []string) ([]publicKey, error) {
	var all []publicKey
	for _, file := range files {
		found, err := keyutil.PublicKeysFromFile(file)
		if err != nil {
			return nil, fmt.Errorf("cannot read the keys of service accounts: %w", err)
		}
		for _, key := range found {
			public, err := newPublicKey(key)
			if err != nil {
				return nil, fmt.Errorf("the key of service accounts %s: %w", file, err)
			}
			all = with(all, public)
		}
	}
	return all, nil
}

// with appends a key that is not among others.
func with(others []publicKey, key publicKey) []publicKey {
	for _, other := range others {
		if other.id == key.id {
			return others
		}
	}
	return append(others, key)
}
