package serving

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/datadir"
)

// loadToken returns the given token, which replaces the stored one, or else the stored one, or else a
// new one.
func loadToken(d *datadir.Dir, given string) (string, error) {
	if given != "" {
		if err := d.Write(tokenFile, []byte(given)); err != nil {
			return "", fmt.Errorf("cannot store the token in %s: %w", d.Path, datadir.Cause(err))
		}
		return given, nil
	}
	content, err := d.ReadOrCreate(tokenFile, func() ([]byte, error) { return []byte(newToken()), nil })
	if err != nil {
		return "", fmt.Errorf("cannot store the token in %s: %w", d.Path, datadir.Cause(err))
	}
	token := string(bytes.TrimSpace(content))
	if token == "" {
		return "", fmt.Errorf("the token file %s is empty: remove it to get a new token", d.File(tokenFile))
	}
	if err := CheckToken(token); err != nil {
		return "", fmt.Errorf("the token file %s: %w", d.File(tokenFile), err)
	}
	return token, nil
}

// CheckToken returns an error for a token that a header cannot contain: every request would be
// answered 401.
func CheckToken(token string) error {
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return fmt.Errorf(
				"a token cannot contain the character %q: give letters, digits and punctuation without spaces or line ends",
				rune(c))
		}
	}
	return nil
}

// newToken returns 32 random bytes, in hexadecimal.
func newToken() string {
	secret := make([]byte, 32)
	rand.Read(secret)
	return hex.EncodeToString(secret)
}
