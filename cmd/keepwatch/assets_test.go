package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// executeAs runs a program of this binary until it ends.
func executeAs(t *testing.T, name string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), await.Deadline)
	defer cancel()
	code = runAs(ctx, name, args, &out, &err)
	return code, out.String(), err.String()
}

// assetsIn makes the assets in a folder.
func assetsIn(t *testing.T, dir string) {
	t.Helper()
	if code, stdout, stderr := execute(t, "assets", "--dir", dir); code != 0 || stdout != dir+"\n" || stderr != "" {
		t.Fatalf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// The links lead to this program, also when several processes make them at the same time. A file of somebody else is
// not replaced.
func TestAssetsAreLinks(t *testing.T) {
	parallel(t)
	dir := filepath.Join(t.TempDir(), "new", "assets")
	var makers []*process
	for range 4 {
		makers = append(makers, startProcess(t, "assets", "--dir", dir))
	}
	for _, p := range makers {
		if code := p.exit(t); code != 0 {
			t.Errorf("exit %d: %s", code, p.stderr)
		}
	}
	self, err := filepath.EvalSymlinks(self(t))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
		if target, err := filepath.EvalSymlinks(filepath.Join(dir, entry.Name())); err != nil || target != self {
			t.Errorf("%s leads to %s, %v", entry.Name(), target, err)
		}
	}
	if !slices.Equal(names, []string{"etcd", "kube-apiserver", "kubectl"}) {
		t.Errorf("the folder has %q", names)
	}

	real := filepath.Join(dir, "etcd")
	if err := errors.Join(os.Remove(real), os.WriteFile(real, []byte("real"), 0o755)); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := execute(t, "assets", "--dir", dir)
	if code != 1 || stdout != "" || !strings.Contains(stderr, "etcd exists and isn't a link: it was not changed") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if content, err := os.ReadFile(real); err != nil || string(content) != "real" {
		t.Errorf("the file was changed: %q, %v", content, err)
	}
}

// With --exact, kube-apiserver is keepwatch-apiserver, in a folder of its own. Without that program, nothing is made.
func TestExactAssets(t *testing.T) {
	cache, path := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache) // on other systems
	t.Setenv("PATH", path)
	code, stdout, stderr := execute(t, "assets", "--exact")
	if made, _ := os.ReadDir(cache); code != 1 || stdout != "" || len(made) > 0 ||
		!strings.Contains(stderr, "there is no keepwatch-apiserver in ") ||
		!strings.Contains(stderr, "make kubernetes") {
		t.Errorf("exit %d, stdout %q, stderr %q, made %v", code, stdout, stderr, made)
	}
	server := filepath.Join(path, "keepwatch-apiserver")
	if err := os.WriteFile(server, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, usual, _ := execute(t, "assets")
	code, exact, stderr := execute(t, "assets", "--exact")
	if code != 0 || exact == usual {
		t.Fatalf("exit %d, %q beside %q, %s", code, exact, usual, stderr)
	}
	if target, err := os.Readlink(filepath.Join(strings.TrimSpace(exact), "kube-apiserver")); err != nil ||
		target != server {
		t.Errorf("kube-apiserver leads to %s, %v", target, err)
	}
}

// Without --dir the folder is in the user's cache, and always the same.
func TestAssetsInCache(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache) // on other systems
	code, first, stderr := execute(t, "assets")
	if code != 0 || !strings.HasPrefix(first, cache) || strings.Count(first, "\n") != 1 {
		t.Fatalf("exit %d, %q, %s", code, first, stderr)
	}
	if _, again, _ := execute(t, "assets"); again != first {
		t.Errorf("%q, and then %q", first, again)
	}
	if _, err := os.Stat(filepath.Join(strings.TrimSpace(first), "kubectl")); err != nil {
		t.Error(err)
	}
	t.Setenv("XDG_CACHE_HOME", filepath.Join(strings.TrimSpace(first), "kubectl")) // a folder cannot be made in it
	t.Setenv("HOME", os.Getenv("XDG_CACHE_HOME"))
	if code, _, stderr := execute(t, "assets"); code != 1 || !strings.Contains(stderr, "give another one with --dir") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// envtest looks for flags in the output of --help, with this expression, and requires exit code 0.
func TestAssetsAnswerFlagProbes(t *testing.T) {
	for _, c := range []struct {
		name, flag string
		has        bool
	}{
		{"kube-apiserver", "insecure-port", false},
		{"kube-apiserver", "etcd-servers", true},
		{"etcd", "unsafe-no-fsync", true},
		{"etcd", "listen-client-urls", true},
	} {
		code, stdout, stderr := executeAs(t, c.name, "--help")
		if code != 0 || stderr != "" {
			t.Fatalf("%s --help: exit %d, stderr %q", c.name, code, stderr)
		}
		if has := regexp.MustCompile(`(?m)^\s*--` + c.flag + `\b`).MatchString(stdout); has != c.has {
			t.Errorf("%s --help has --%s: %v", c.name, c.flag, has)
		}
	}
	for name, form := range map[string]string{"kube-apiserver": `^Kubernetes v1\.\d+\.\d+\S*\n$`,
		"etcd": `^etcd Version: 3\.\d+\.\d+\n$`} {
		if code, stdout, _ := executeAs(t, name, "--version"); code != 0 || !regexp.MustCompile(form).MatchString(stdout) {
			t.Errorf("%s --version: exit %d, %q", name, code, stdout)
		}
	}
}

func TestAssetsRefuseInvalidFlags(t *testing.T) {
	for _, line := range [][]string{
		{"kube-apiserver", "--secure-port=65536"},
		{"kube-apiserver", "argument"},
		{"kube-apiserver", "--bind-address=nonsense", "--etcd-servers=nonsense"},
		{"etcd", "--nonsense"},
		{"etcd", "argument"},
		{"etcd", "--listen-client-urls=https://127.0.0.1:0"},
	} {
		code, stdout, stderr := executeAs(t, line[0], line[1:]...)
		if code != 2 || stdout != "" || !strings.HasPrefix(stderr, line[0]+": ") ||
			!strings.HasSuffix(stderr, "See '"+line[0]+" --help'.\n") {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", line, code, stdout, stderr)
		}
	}
}

// startAsset starts a program in a folder of assets.
func startAsset(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return startLine(t, append([]string{filepath.Join(dir, args[0])}, args[1:]...))
}

// freePort returns a port of 127.0.0.1 that no outgoing connection uses.
func freePort(t *testing.T) string {
	t.Helper()
	port, err := localhost.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// startEmptyEtcd starts the asset etcd with the flags of jenvtest and fabric8's kube-api-test, and returns its URL.
func startEmptyEtcd(t *testing.T, dir string) (*process, string) {
	t.Helper()
	port, peers := freePort(t), "http://localhost:"+freePort(t)
	p := startAsset(t, dir, "etcd", "-data-dir", t.TempDir(), "-wal-dir", t.TempDir(),
		"--listen-client-urls", "http://127.0.0.1:"+port, "--advertise-client-urls", "http://127.0.0.1:"+port,
		"--initial-cluster", "default="+peers, "--initial-advertise-peer-urls", peers, "--listen-peer-urls", peers)
	return p, "http://127.0.0.1:" + port
}

// The asset etcd is healthy, and answers requests for data with an error: it stores nothing.
func TestEmptyEtcd(t *testing.T) {
	parallel(t)
	dir := t.TempDir()
	assetsIn(t, dir)
	p, url := startEmptyEtcd(t, dir)
	await.NoError(t, "etcd is healthy", func() error {
		response, err := http.Get(url + "/health")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK ||
			string(body) != `{"health":"true","reason":""}` {
			return fmt.Errorf("%s: %q, %v", response.Status, body, err)
		}
		return nil
	})
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Put(t.Context(), "a", "b"); grpcstatus.Code(err) != codes.Unimplemented ||
		!strings.Contains(err.Error(), "stores nothing") {
		t.Errorf("a put is answered: %v", err)
	}
	terminate(t, p)
}

// javaCertificate makes a client certificate as jenvtest and kube-api-test do: it has signed itself, without
// extensions, and is its own authority.
func javaCertificate(t *testing.T, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixMilli()),
		Subject:      pkix.Name{CommonName: "kubeapitest", Organization: []string{"system:masters"}},
		NotBefore:    time.Now(), NotAfter: time.Now().AddDate(1, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// The command line of jenvtest and kube-api-test: flags with separate values, repeated ones, one without a value,
// and one that has no effect; and one with an underscore, which kube-apiserver also takes. The user of a client
// certificate has its names. The server starts before its etcd.
func TestAPIServerOfJava(t *testing.T) {
	parallel(t)
	dir := t.TempDir()
	assetsIn(t, dir)
	cert, key, port := filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key"), freePort(t)
	javaCertificate(t, cert, key)
	etcdPort := freePort(t)
	p := startAsset(t, dir, "kube-apiserver", "--min-request-timeout", "300", "--cert-dir", dir,
		"--secure_port", port, "--etcd-servers", "http://127.0.0.1:"+etcdPort, "--authorization-mode", "RBAC",
		"--service-account-issuer", "https://localhost",
		"--service-account-signing-key-file", key, "--service-account-signing-key-file", key,
		"--service-account-key-file", key, "--service-account-issuer", cert,
		"--disable-admission-plugins", "ServiceAccount", "--client-ca-file", cert,
		"--service-cluster-ip-range", "10.0.0.0/24", "--allow-privileged")
	etcd := startAsset(t, dir, "etcd", "--listen-client-urls", "http://127.0.0.1:"+etcdPort, "--advertise-client-urls",
		"http://127.0.0.1:"+etcdPort)
	p.waitStderr(t, ", data in memory\n")
	text := p.stderr.String()
	if !strings.HasPrefix(text, "kube-apiserver (keepwatch): --min-request-timeout has no effect here\n") ||
		strings.Count(text, "\n") != 2 {
		t.Errorf("stderr is %q", text)
	}
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:            "https://127.0.0.1:" + port,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "apiserver.crt"), CertFile: cert, KeyFile: key},
	})
	if err != nil {
		t.Fatal(err)
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if user := review.Status.UserInfo; user.Username != "kubeapitest" || !slices.Contains(user.Groups, "system:masters") {
		t.Errorf("the user is %+v", user)
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	server := []string{"--server", "https://127.0.0.1:" + port, "--certificate-authority",
		filepath.Join(dir, "apiserver.crt"), "--kubeconfig", os.DevNull}
	admin := append(server, "--client-certificate", cert, "--client-key", key)
	kubectlOutput(t, dir, append(admin, "create", "serviceaccount", "robot")...)
	token := kubectlOutput(t, dir, append(admin, "create", "token", "robot", "--duration", "20m")...)
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil || !strings.Contains(string(payload), `"iss":"https://localhost"`) || !strings.Contains(string(payload),
		`"aud":["https://localhost",`) {
		t.Errorf("the claims are %s, %v", payload, err)
	}
	if name := kubectlOutput(t, dir, append(server, "--token", token, "auth", "whoami", "-o",
		"jsonpath={.status.userInfo.username}")...); name != "system:serviceaccount:default:robot" {
		t.Errorf("the user of the token is %q", name)
	}
	changed := rest.AnonymousClientConfig(&rest.Config{Host: "https://127.0.0.1:" + port,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "apiserver.crt")}})
	changed.BearerToken = token + "x"
	if stranger, err := kubernetes.NewForConfig(changed); err != nil {
		t.Error(err)
	} else if _, err := stranger.CoreV1().Namespaces().List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a changed token: %v", err)
	}
	if text := p.stderr.String(); strings.Contains(text, token[:40]) || strings.Count(text, "\n") != 2 {
		t.Errorf("stderr is %q", text)
	}
	terminate(t, p)
	terminate(t, etcd)
}

// kubectlOutput runs the asset kubectl, and returns its output without the line end.
func kubectlOutput(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "kubectl"), args...)
	cmd.Env = append(environment(t), "HOME="+t.TempDir())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl: %v\n%s", err, &stderr) // not the arguments, which may have a token
	}
	return strings.TrimSuffix(string(stdout), "\n")
}

// kubectl is the release that its module belongs to, as the server is.
func TestAssetsKubectlVersion(t *testing.T) {
	parallel(t)
	dir := t.TempDir()
	assetsIn(t, dir)
	release, _, _ := strings.Cut(controlplane.Release(), "+")
	if text := kubectlOutput(t, dir, "version", "--client"); !strings.HasPrefix(text, "Client Version: "+release+"\n") {
		t.Errorf("%q, want %s", text, release)
	}
	minor := strings.Split(release, ".")[1]
	if text := kubectlOutput(t, dir, "version", "--client", "-o", "json"); !strings.Contains(text, `"major": "1"`) ||
		!strings.Contains(text, `"minor": "`+minor+`"`) {
		t.Error(text)
	}
}

// A server ends when the process that started it is killed.
func TestAssetsEndWithTheirParent(t *testing.T) {
	parallel(t)
	dir := t.TempDir()
	assetsIn(t, dir)
	port := freePort(t)
	url := "http://127.0.0.1:" + port
	parent := startLine(t, []string{"/bin/sh", "-c", `"$@" & wait`, "sh",
		filepath.Join(dir, "etcd"), "--listen-client-urls", url, "--advertise-client-urls", url})
	answers := func() error {
		response, err := http.Get(url + "/health")
		if err == nil {
			response.Body.Close()
		}
		return err
	}
	await.NoError(t, "etcd answers", answers)
	parent.Process.Kill()
	parent.exit(t)
	await.NoError(t, "etcd ends", func() error {
		http.DefaultClient.CloseIdleConnections()
		if answers() == nil {
			return errors.New("it still answers")
		}
		return nil
	})
}

// So does keepwatch serve, if it is asked to.
func TestServeEndsWithItsParent(t *testing.T) {
	parallel(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	parent := startLine(t, []string{"/bin/sh", "-c", `"$@" & wait`, "sh",
		self(t), "serve", "--end-with-parent", "--listen", "127.0.0.1:0", "--kubeconfig-out", kubeconfig})
	parent.waitReady(t)
	host := configOf(t, kubeconfig).Host
	parent.Process.Kill()
	await.NoError(t, "the server ends", func() error {
		if conn, err := net.Dial("tcp", strings.TrimPrefix(host, "https://")); err == nil {
			conn.Close()
			return errors.New("it still accepts connections")
		}
		return nil
	})
}
