package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"time"

	"aead.dev/minisign"
)

// signingKey is the secret key of a releaser.
type signingKey struct {
	secret minisign.PrivateKey
	public minisign.PublicKey
}

// readKey reads a secret key of minisign. The password is not used for a key without one.
func readKey(name, password string) (*signingKey, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("SIGN_KEY: %w", err)
	}
	k := &signingKey{}
	if !minisign.IsEncrypted(text) {
		if err := k.secret.UnmarshalText(bytes.TrimSpace(text)); err != nil {
			return nil, fmt.Errorf("SIGN_KEY: %s is no secret key of minisign: %w", name, err)
		}
	} else if password == "" {
		return nil, fmt.Errorf("SIGN_KEY: %s is encrypted: set SIGN_PASSWORD", name)
	} else if k.secret, err = minisign.DecryptKey(password, bytes.TrimSpace(text)); err != nil {
		return nil, fmt.Errorf("SIGN_KEY: SIGN_PASSWORD does not decrypt %s", name)
	}
	k.public = k.secret.Public().(minisign.PublicKey)
	return k, nil
}

// sign writes the signatures of the checksums and of the provenance, and the public key in the forms that
// their verifiers read.
func (r *release) sign() error {
	if r.key == nil {
		return nil
	}
	comment := fmt.Sprintf("keepwatch %s, commit %s, %s", r.version, r.source.commit, r.source.date.Format(time.RFC3339))
	envelope, err := r.key.envelope("application/vnd.in-toto+json", r.provenanceText)
	if err != nil {
		return err
	}
	public, err := r.key.public.MarshalText()
	if err != nil {
		return err
	}
	der, err := r.key.der()
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		text []byte
	}{
		{sumsName + ".minisig", r.key.minisig(r.sumsText, comment)},
		{"provenance.intoto.jsonl", append(envelope, '\n')},
		{"keepwatch.pub", append(bytes.TrimSpace(public), '\n')},
		{"keepwatch.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})},
	} {
		if err := r.out.writeText(f.name, f.text); err != nil {
			return err
		}
	}
	return nil
}

// minisig returns a signature in minisign's format, of a hash of the text as minisign itself makes it.
func (k *signingKey) minisig(text []byte, comment string) []byte {
	hashed := minisign.NewReader(bytes.NewReader(text))
	_, _ = io.Copy(io.Discard, hashed) // reads memory
	return hashed.SignWithComments(k.secret, comment, "verify with keepwatch.pub")
}

// envelope returns a text in a DSSE envelope with its signature. The signature names no key: it is a hint, and
// verifiers differ in how they name one.
func (k *signingKey) envelope(payloadType string, text []byte) ([]byte, error) {
	signed := fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(text), text)
	var signature minisign.Signature // whose first part is Ed25519's of the text itself
	if err := signature.UnmarshalText(minisign.SignWithComments(k.secret, signed, "", "")); err != nil {
		return nil, err
	}
	type entry struct {
		KeyID string `json:"keyid"`
		Sig   []byte `json:"sig"`
	}
	return json.Marshal(struct {
		PayloadType string  `json:"payloadType"`
		Payload     []byte  `json:"payload"`
		Signatures  []entry `json:"signatures"`
	}{payloadType, text, []entry{{Sig: signature.Signature[:]}}})
}

// der returns the public key as X.509 has it. minisign's format is the algorithm, a number and the key.
func (k *signingKey) der() ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(k.public.String())
	if err != nil {
		return nil, err
	}
	return x509.MarshalPKIXPublicKey(ed25519.PublicKey(raw[len(raw)-ed25519.PublicKeySize:]))
}
