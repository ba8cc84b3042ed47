package main

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"aead.dev/minisign"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/signerverifier"
	"google.golang.org/protobuf/encoding/protojson"
)

// newKey writes a secret key for this test without a password.
func newKey(t *testing.T) string {
	t.Helper()
	_, secret, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := secret.MarshalText()
	name := filepath.Join(t.TempDir(), "test.key")
	if err := errors.Join(err, os.WriteFile(name, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	return name
}

// signed makes a signed release.
func signed(t *testing.T, key string) (dir string, files map[string][]byte, repo string) {
	t.Helper()
	repo, dir = newRepository(t), filepath.Join(t.TempDir(), testVersion)
	files, _ = makeRelease(t, command(t, repo, "022", complete(dir, "-sign-key", key)...), dir)
	return dir, files, repo
}

// Debian's minisign accepts the signature of the checksums, and no other text and no other key. It makes the key, too.
func TestMinisign(t *testing.T) {
	if _, err := exec.LookPath("minisign"); err != nil {
		t.Skip("no minisign (make debian): signatures are NOT verified by minisign itself")
	}
	keys := t.TempDir()
	key := filepath.Join(keys, "test.key")
	generate(t, filepath.Join(keys, "key.pub"), key)
	dir, _, _ := signed(t, key)
	verify := func(public string) (string, error) {
		verify := exec.Command("minisign", "-V", "-m", filepath.Join(dir, "SHA256SUMS"), "-p", public)
		text, err := verify.CombinedOutput()
		return string(text), err
	}
	for _, public := range []string{filepath.Join(keys, "key.pub"), filepath.Join(dir, "keepwatch.pub")} {
		trusted := regexp.MustCompile(`comment: keepwatch v0\.1\.0-rc\.1, commit [0-9a-f]{40}, 2023-11-14T22:13:20Z\n`)
		if text, err := verify(public); err != nil || !trusted.MatchString(text) {
			t.Errorf("%s: %v: %s", public, err, text)
		}
	}
	other := filepath.Join(t.TempDir(), "other.pub")
	generate(t, other, other+".key")
	if text, err := verify(other); err == nil {
		t.Errorf("another key: %s", text)
	}
	file, err := os.OpenFile(filepath.Join(dir, "SHA256SUMS"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(file); err != nil || file.Close() != nil {
		t.Fatal(err)
	}
	if text, err := verify(filepath.Join(keys, "key.pub")); err == nil {
		t.Errorf("a changed file: %s", text)
	}
}

// generate makes a key without a password.
func generate(t *testing.T, public, secret string) {
	t.Helper()
	if text, err := exec.Command("minisign", "-G", "-W", "-p", public, "-s", secret).CombinedOutput(); err != nil {
		t.Fatalf("minisign: %v: %s", err, text)
	}
}

// The envelope's signature is accepted by the library of in-toto's own programs and by OpenSSL, and its statement is
// provenance as in-toto's own types have it: of all files, from the commit and the modules.
func TestProvenance(t *testing.T) {
	dir, files, repo := signed(t, newKey(t))
	block, _ := pem.Decode(files["keepwatch.pem"])
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	var envelope dsse.Envelope
	if err := json.Unmarshal(files["provenance.intoto.jsonl"], &envelope); err != nil {
		t.Fatal(err)
	}
	payload, err := verifyEnvelope(public, &envelope)
	if err != nil {
		t.Fatal(err)
	}
	if string(payload) != string(files["provenance.json"]) {
		t.Error("the envelope has another statement")
	}
	changed := envelope
	changed.Payload = base64.StdEncoding.EncodeToString(append(payload, ' '))
	if _, err := verifyEnvelope(public, &changed); err == nil {
		t.Error("a changed statement is accepted")
	}
	opensslVerifies(t, dir, payload, envelope)

	var statement intoto.Statement
	if err := protojson.Unmarshal(payload, &statement); err != nil {
		t.Fatal(err)
	}
	if err := statement.Validate(); err != nil {
		t.Error(err)
	}
	predicate, err := protojson.Marshal(statement.GetPredicate())
	if err != nil {
		t.Fatal(err)
	}
	var provenance slsa.Provenance
	if err := protojson.Unmarshal(predicate, &provenance); err != nil {
		t.Fatal(err)
	}
	if err := provenance.Validate(); err != nil {
		t.Error(err)
	}

	subjects := map[string]string{}
	for _, s := range statement.GetSubject() {
		subjects[s.GetName()] = s.GetDigest()["sha256"]
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(files["SHA256SUMS"])) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[name] = sum
	}
	delete(sums, "provenance.json")
	if !maps.Equal(subjects, sums) {
		t.Errorf("the subjects are %q, and the sums %q", subjects, sums)
	}
	materials := provenance.GetBuildDefinition().GetResolvedDependencies()
	if commit := git(t, repo, "rev-parse", "HEAD"); materials[0].GetDigest()["gitCommit"] != commit {
		t.Errorf("the first material is %v, and the commit %s", materials[0], commit)
	}
	i := slices.IndexFunc(materials, func(r *intoto.ResourceDescriptor) bool {
		return strings.HasPrefix(r.GetUri(), "pkg:golang/aead.dev/minisign@")
	})
	if i < 0 {
		t.Fatalf("the materials lack a module of the programs: %v", materials)
	}
	sum, err := hex.DecodeString(materials[i].GetDigest()["dirHash"])
	if err != nil {
		t.Fatal(err)
	}
	module := strings.Replace(strings.TrimPrefix(materials[i].GetUri(), "pkg:golang/"), "@", " ", 1)
	text, err := os.ReadFile(filepath.Join("..", "go.sum"))
	line := module + " h1:" + base64.StdEncoding.EncodeToString(sum) + "\n"
	if err != nil || !strings.Contains(string(text), line) {
		t.Errorf("go.sum does not have %q (%v)", line, err)
	}
	if id := provenance.GetRunDetails().GetBuilder().GetId(); id != docs+"#the-builder" {
		t.Errorf("the builder is %s", id)
	}
}

func verifyEnvelope(public crypto.PublicKey, envelope *dsse.Envelope) ([]byte, error) {
	text, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, err
	}
	key, err := signerverifier.LoadKey(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: text}))
	if err != nil {
		return nil, err
	}
	verifier, err := signerverifier.NewED25519SignerVerifierFromSSLibKey(key)
	if err != nil {
		return nil, err
	}
	all, err := dsse.NewEnvelopeVerifier(verifier)
	if err != nil {
		return nil, err
	}
	if _, err := all.Verify(context.Background(), envelope); err != nil {
		return nil, err
	}
	return envelope.DecodeB64Payload()
}

// opensslVerifies checks the signature as docs/releases.md says it.
func opensslVerifies(t *testing.T, dir string, payload []byte, envelope dsse.Envelope) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Log("no openssl: the provenance is NOT verified by it")
		return
	}
	signature, err := base64.StdEncoding.DecodeString(envelope.Signatures[0].Sig)
	work := t.TempDir()
	text := fmt.Appendf(nil, "DSSEv1 28 application/vnd.in-toto+json %d %s", len(payload), payload)
	for name, text := range map[string][]byte{"signed": text, "signature": signature} {
		err = errors.Join(err, os.WriteFile(filepath.Join(work, name), text, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	verify := exec.Command("openssl", "pkeyutl", "-verify", "-pubin", "-inkey", filepath.Join(dir, "keepwatch.pem"),
		"-rawin", "-in", "signed", "-sigfile", "signature")
	verify.Dir = work
	const verified = "Signature Verified Successfully"
	if text, err := verify.CombinedOutput(); err != nil || !strings.Contains(string(text), verified) {
		t.Errorf("openssl: %v: %s", err, text)
	}
}
