package apiserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/kms/pkg/service"
)

// identity stores objects as they are.
const identity = `identity: {}`

func aescbc(keys ...string) string    { return keyProvider("aescbc", keys) }
func secretbox(keys ...string) string { return keyProvider("secretbox", keys) }

// keyProvider encrypts with the first of some keys, whose names have one letter.
func keyProvider(algorithm string, names []string) string {
	var keys []string
	for _, name := range names {
		secret := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(name, 32)))
		keys = append(keys, fmt.Sprintf("{name: %s, secret: %s}", name, secret))
	}
	return fmt.Sprintf("%s: {keys: [%s]}", algorithm, strings.Join(keys, ", "))
}

func kmsProvider(socket string) string {
	return fmt.Sprintf(`kms: {apiVersion: v2, name: test, endpoint: "unix://%s"}`, socket)
}

// writeEncryption writes a configuration that encrypts all resources with the first provider and
// decrypts with each. It replaces the file, as a kubelet does that mounts it.
func writeEncryption(t *testing.T, path string, providers ...string) string {
	t.Helper()
	var b bytes.Buffer
	b.WriteString(
		"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: ['*.*']\n  providers:\n")
	for _, p := range providers {
		fmt.Fprintf(&b, "  - %s\n", p)
	}
	if err := os.WriteFile(path+".new", b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// kms is a plugin of a key management service whose ciphertext is the plaintext in other bits.
type kms struct{}

func (kms) Encrypt(_ context.Context, _ string, data []byte) (*service.EncryptResponse, error) {
	return &service.EncryptResponse{Ciphertext: flipped(data), KeyID: "1"}, nil
}

func (kms) Decrypt(_ context.Context, _ string, r *service.DecryptRequest) ([]byte, error) {
	return flipped(r.Ciphertext), nil
}

func (kms) Status(context.Context) (*service.StatusResponse, error) {
	return &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: "1"}, nil
}

func flipped(data []byte) []byte {
	all := bytes.Clone(data)
	for i := range all {
		all[i] ^= 0x5a
	}
	return all
}

// startKMS serves the plugin for the duration of the test and returns its socket.
func startKMS(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms-") // a socket needs a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "kms.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(server, service.NewGRPCService(socket, 0, kms{}))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Errorf("the KMS plugin: %v", err)
		}
	})
	return socket
}
