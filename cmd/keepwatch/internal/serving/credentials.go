package serving

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/internal/privatefile"
)

// Credentials are what clients have of a server: its token, and the authority of the certificate that it makes.
// With a directory of --state they stay the same, or no client could resume after a restart.
type Credentials struct {
	Token     string
	authority localhost.Authority
}

// credentialsFile is in the directory of --state. Only its owner can read it.
const credentialsFile = "credentials.json"

// storedCredentials are the content of the file.
type storedCredentials struct {
	Token        string `json:"token"`
	Authority    []byte `json:"authority"`
	AuthorityKey []byte `json:"authorityKey"`
}

// authorityLeft is how long a stored authority must be valid to be used again.
const authorityLeft = 365 * 24 * time.Hour

// LoadCredentials returns the credentials in a directory, or new ones, which it stores there. Without a directory
// they are those of this process.
func LoadCredentials(dir string) (*Credentials, error) {
	if dir == "" {
		return NewCredentials()
	}
	file := filepath.Join(dir, credentialsFile)
	text, err := os.ReadFile(file)
	if err == nil {
		found, damage := parseCredentials(text)
		if damage == nil {
			return found, nil
		}
		klog.ErrorS(damage, "The proxy has another authority and another token: its clients need the new kubeconfig", "file",
			file)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--state: %w", err)
	}
	c, err := NewCredentials()
	if err != nil {
		return nil, err
	}
	if text, err = json.Marshal(storedCredentials{c.Token, c.authority.Cert, c.authority.Key}); err == nil {
		err = privatefile.Write(file, text)
	}
	if err != nil {
		return nil, fmt.Errorf("--state: %w", err)
	}
	return c, nil
}

// NewCredentials returns a random token, and a new authority.
func NewCredentials() (*Credentials, error) {
	authority, err := localhost.NewAuthority()
	return &Credentials{rand.Text(), authority}, err
}

func parseCredentials(text []byte) (*Credentials, error) {
	var stored storedCredentials
	if err := json.Unmarshal(text, &stored); err != nil {
		return nil, err
	}
	authority, err := localhost.ParseAuthority(stored.Authority, stored.AuthorityKey)
	switch {
	case err != nil:
		return nil, err
	case stored.Token == "":
		return nil, errors.New("the token is missing")
	case time.Until(authority.Expires()) < authorityLeft:
		return nil, fmt.Errorf("the authority expires on %s", authority.Expires().Format(time.DateOnly))
	}
	return &Credentials{stored.Token, authority}, nil
}

// certificate makes a certificate for an address.
func (c *Credentials) certificate(address net.Addr) (dynamiccertificates.CertKeyContentProvider, error) {
	host, _, err := net.SplitHostPort(address.String())
	if err != nil {
		return nil, err
	}
	made, err := c.authority.Certificate(host)
	if err != nil {
		return nil, err
	}
	return dynamiccertificates.NewStaticCertKeyContent("made", made.Cert, made.Key)
}
