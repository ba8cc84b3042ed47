package tokens

import (
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/datadir"
)

// DefaultIssuer is the name of the issuer unless a Config has another one. It is kubeadm's.
const DefaultIssuer = "https://kubernetes.default.svc.cluster.local"

// Config has what a user gives. Each field may be empty.
type Config struct {
	// Issuers are the names of the issuer: the first is in new tokens, tokens with any of them are accepted.
	Issuers []string
	// SigningKeyFile is the private key, PEM, that signs tokens, instead of the one in the data folder.
	SigningKeyFile string
	// KeyFiles have public or private keys, PEM, that verify tokens, besides the key that signs.
	KeyFiles []string
}

// Issuer issues tokens of service accounts. It is immutable.
type Issuer struct {
	names  []string
	signer jose.Signer
	keys   []publicKey
}

// NewIssuer returns an issuer with the keys that config names, or with the key in d.
func NewIssuer(d *datadir.Dir, config Config) (*Issuer, error) {
	private, err := loadSigningKey(d, config.SigningKeyFile)
	if err != nil {
		return nil, err
	}
	public, err := newPublicKey(private.Public())
	if err != nil {
		return nil, fmt.Errorf("the signing key of service accounts: %w", err)
	}
	i := &Issuer{names: config.Issuers}
	if len(i.names) == 0 {
		i.names = []string{DefaultIssuer}
	}
	if i.keys, err = loadPublicKeys(config.KeyFiles); err != nil {
		return nil, err
	}
	i.keys = with(i.keys, public)
	key := jose.JSONWebKey{Algorithm: string(public.algorithm), Key: private, KeyID: public.id, Use: "sig"}
	i.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: public.algorithm, Key: key}, nil)
	if err != nil {
		return nil, fmt.Errorf("the signing key of service accounts cannot be used: %w", err)
	}
	return i, nil
}

// Audiences returns the audiences of tokens for the API server itself, which are the names of the issuer.
func (i *Issuer) Audiences() authenticator.Audiences { return i.names }

// Issue returns a token of a service account for audiences. It begins now. An error is one of the key.
func (i *Issuer) Issue(account *corev1.ServiceAccount, audiences []string, bound Bound, life Lifetime) (string, error) {
	return jwt.Signed(i.signer).Claims(newClaims(i.names[0], account, audiences, bound, life, time.Now())).Serialize()
}
