package etcd_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/source/etcd"
)

// certificate creates a self-signed certificate, which both sides use and trust.
func certificate(tb testing.TB) (files transport.TLSInfo) {
	tb.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(tb)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(tb)
	private := must(x509.MarshalECPrivateKey(key))(tb)
	dir := tb.TempDir()
	files = transport.TLSInfo{CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key"),
		ClientCertAuth: true}
	files.TrustedCAFile = files.CertFile
	for path, block := range map[string]*pem.Block{
		files.CertFile: {Type: "CERTIFICATE", Bytes: der}, files.KeyFile: {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return files
}

func TestTLS(t *testing.T) {
	ours, theirs := certificate(t), certificate(t)
	m := startMember(t, func(c *embed.Config) {
		c.ListenClientUrls = []url.URL{{Scheme: "https", Host: "127.0.0.1:0"}}
		c.ClientTLSInfo = ours
	})
	endpoints := []string{"https://" + m.etcd.Clients[0].Addr().String()}
	config := func(files transport.TLSInfo) *tls.Config { return must(files.ClientConfig())(t) }
	source := func(c *tls.Config) *etcd.Source {
		return newSource(t, dial(t, clientv3.Config{Endpoints: endpoints, TLS: c}), etcd.Options{})
	}

	trusted := source(config(ours))
	_, revision := list(t, trusted)
	must(trusted.Watch(t.Context(), revision))(t).Close()

	distrusting := source(config(theirs))
	_, err := distrusting.List(t.Context(), keepwatch.ListRequest{})
	wantKind(t, err, keepwatch.Untrusted)
	_, err = distrusting.Watch(t.Context(), revision)
	wantKind(t, err, keepwatch.Untrusted)
	_, err = distrusting.Newest(t.Context())
	wantKind(t, err, keepwatch.Untrusted)

	// With TLS 1.3 a client may find the connection broken before it reads why.
	anonymous := config(ours)
	anonymous.GetClientCertificate = nil
	refused := source(anonymous)
	await.True(t, "a client without certificate is Unauthorized", func() bool {
		_, err := refused.List(t.Context(), keepwatch.ListRequest{})
		if kindOf(err) != keepwatch.Unauthorized {
			wantKind(t, err, keepwatch.Unreachable)
		}
		return kindOf(err) == keepwatch.Unauthorized
	})
}

// A user needs only the right to read the prefix. A change of other users' rights does not
// interrupt it.
func TestAuth(t *testing.T) {
	m := startMember(t, nil)
	admin := dial(t, clientv3.Config{Endpoints: m.endpoints()})
	ctx := t.Context()
	grant := func(role, prefix string) {
		must(admin.RoleAdd(ctx, role))(t)
		must(admin.RoleGrantPermission(ctx, role, prefix, clientv3.GetPrefixRangeEnd(prefix),
			clientv3.PermissionType(clientv3.PermRead)))(t)
	}
	grant("reader", prefixOf(t))
	must(admin.UserAdd(ctx, "root", "secret"))(t)
	must(admin.RoleAdd(ctx, "root"))(t)
	must(admin.UserGrantRole(ctx, "root", "root"))(t)
	must(admin.UserAdd(ctx, "ann", "secret"))(t)
	must(admin.UserGrantRole(ctx, "ann", "reader"))(t)
	must(admin.AuthEnable(ctx))(t)

	user := func(name string) *clientv3.Client {
		return dial(t, clientv3.Config{Endpoints: m.endpoints(), Username: name, Password: "secret"})
	}
	root, ann := user("root"), user("ann")
	w := fixture{root, newSource(t, ann, etcd.Options{}), prefixOf(t)}
	from := w.put(t, "a", "1")
	if _, revision := list(t, w); revision != from {
		t.Errorf("the list has revision %d, want %d", revision, from)
	}
	watch := w.watch(t, from)
	end := w.put(t, "a", "2")
	readTo(t, watch, from, must(w.Newest(ctx))(t))

	elsewhere := newSource(t, ann, etcd.Options{Prefix: "/secrets/"})
	_, err := elsewhere.List(ctx, keepwatch.ListRequest{})
	wantKind(t, err, keepwatch.Forbidden)
	_, err = elsewhere.Watch(ctx, end)
	wantKind(t, err, keepwatch.Forbidden)

	// Each change of the users expires all tokens; the client renews them.
	must(root.UserAdd(ctx, "bob", "secret"))(t)
	must(w.Newest(ctx))(t)
	w.watch(t, end)

	must(root.UserRevokeRole(ctx, "ann", "reader"))(t)
	_, err = w.Source.Watch(ctx, end)
	wantKind(t, err, keepwatch.Forbidden)
	must(root.UserDelete(ctx, "ann"))(t)
	_, err = w.Source.Watch(ctx, end)
	wantKind(t, err, keepwatch.Unauthorized)
	_, err = newSource(t, dial(t, clientv3.Config{Endpoints: m.endpoints()}), etcd.Options{}).Newest(ctx)
	wantKind(t, err, keepwatch.Unauthorized)
}
