package peer

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// Keepwatch builds the command keepwatch from the tree as it is now, and
// returns its path. With the race detector on in the test, it is on in the
// command too.
func Keepwatch(tb testing.TB) string {
	tb.Helper()
	path, err := KeepwatchPath()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// KeepwatchPath is Keepwatch without a test.
func KeepwatchPath() (string, error) { return keepwatch() }

// keepwatch builds once in this process.
var keepwatch = sync.OnceValues(func() (string, error) { return buildCommand("keepwatch", ".", "./cmd/keepwatch") })

// Program builds a main package of the test module from the tree as it is now, under a name, and
// returns its path. pkg is relative to the module, such as ./matrix/clients/golang.
func Program(name, pkg string) (string, error) {
	return buildCommand(name, "test", pkg)
}

// buildCommand builds a command of the module in a folder of this repository. The go command replaces
// its output, or does not touch it if nothing changed; tests run a link to it, named after the
// content. The flags are those of go build.
func buildCommand(name, module, pkg string, flags ...string) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	root, err := TestModule()
	if err != nil {
		return "", err
	}
	file, args := name, append([]string{"build"}, flags...)
	if raceEnabled {
		file, args = name+"-race", append(args, "-race")
	}
	latest := filepath.Join(cache, file)
	unlock, err := lock(latest + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	dir := filepath.Join(filepath.Dir(root), module)
	ours := []string{"GOWORK=", "GOFLAGS=" + os.Getenv("GOFLAGS")} // as make build, so that it has compiled most of it
	if err := goBuild(context.Background(), dir, latest, ours, append(args, "-buildvcs=false", pkg)); err != nil {
		return "", err
	}
	digest, err := fileDigest(latest)
	if err != nil {
		return "", err
	}
	linked := fmt.Sprintf("%s-%s", latest, digest)
	if !touch(linked) {
		if err := os.Link(latest, linked); err != nil {
			return "", err
		}
	}
	return linked, removeUnused(latest+"-????????", time.Hour)
}

func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:4]), nil
}

// Serve starts keepwatch serve with an embedded etcd and, as Kubernetes, without controllers, for the duration of the
// test. The flags follow the default ones and override them.
func Serve(tb testing.TB, flags ...string) *Server {
	tb.Helper()
	return serve(tb, startServe, flags)
}

// ServeInMemory is Serve without etcd: the objects are in memory alone.
func ServeInMemory(tb testing.TB, flags ...string) *Server {
	tb.Helper()
	return serve(tb, func(ctx context.Context, dir string, flags []string) (*Server, error) {
		s := &Server{kubeconfig: filepath.Join(dir, "kubeconfig")}
		return s, s.startServe(ctx, dir, flags)
	}, flags)
}

func serve(tb testing.TB, start func(context.Context, string, []string) (*Server, error), flags []string) *Server {
	tb.Helper()
	// The socket of the embedded etcd needs a short path.
	dir, err := os.MkdirTemp("", "keepwatch-test-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	s, err := start(tb.Context(), dir, flags)
	own(tb, s.Service, err)
	return s
}

// ServeOn is Serve on an etcd that runs already.
func ServeOn(tb testing.TB, etcd *EtcdServer, flags ...string) *Server {
	tb.Helper()
	s := Serve(tb, append([]string{"--etcd-servers", string(etcd.Endpoint), "--adopt"}, flags...)...)
	s.endpoint, s.etcd = etcd.Endpoint, etcd
	return s
}

func startServe(ctx context.Context, dir string, flags []string) (*Server, error) {
	data := filepath.Join(dir, "data")
	s := &Server{
		kubeconfig: filepath.Join(dir, "kubeconfig"),
		data:       data,
		endpoint:   Endpoint("unix://" + filepath.Join(data, "run", "etcd.sock")),
	}
	return s, s.startServe(ctx, dir, append([]string{"--data-dir", data}, flags...))
}

// startServe starts keepwatch serve, with its log in a folder.
func (s *Server) startServe(ctx context.Context, dir string, flags []string) error {
	path, err := keepwatch()
	if err != nil {
		return err
	}
	s.Service = &Service{
		name: "keepwatch serve", path: path, log: filepath.Join(dir, "serve.log"),
		probe: s.kubeconfigReady,
	}
	token := rand.Text()
	return s.launch(ctx, func(port int) {
		s.args = append([]string{
			"serve",
			"--listen", fmt.Sprintf("127.0.0.1:%d", port),
			"--kubeconfig-out", s.kubeconfig,
			"--token", token,
			"--controllers=false",
		}, flags...)
	})
}

// kubeconfigReady is ready with the kubeconfig that the server writes.
func (s *Server) kubeconfigReady(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	s.config = config
	return s.ready(ctx)
}
