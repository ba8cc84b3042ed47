package controlplane_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// shared is the server of the tests that don't need their own: in memory, or with sharedEtcd on an embedded etcd.
var (
	shared     *controlplane.Server
	sharedEtcd = flag.Bool("shared.etcd", false, "run the shared server on an embedded etcd")
)

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	flag.Parse()
	klog.SetLogger(logr.Discard())
	wal.SegmentSizeBytes = 1 << 20 // instead of 64 MiB, of which each start of etcd allocates two
	ignore := []goleak.Option{
		goleak.IgnoreCurrent(),
		// A timer of the library's watch cache: each read at a revision leaves one behind for 3 seconds.
		goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"),
	}
	var err error
	if shared, err = controlplane.New(controlplane.Options{TemporaryEtcd: *sharedEtcd}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- shared.Run(ctx) }()
	select {
	case <-shared.Ready():
	case err := <-ended:
		fmt.Fprintln(os.Stderr, "the shared server didn't start:", err)
		return 1
	}
	code := m.Run()
	cancel()
	if err := <-ended; err != nil {
		fmt.Fprintln(os.Stderr, "the shared server ended with:", err)
		return 1
	}
	return await.Goroutines(code, ignore...)
}

// running is the server of one test.
type running struct {
	*controlplane.Server
	t      *testing.T
	cancel context.CancelFunc
	ended  chan error
}

// start runs a server until the test ends or stop is called.
func start(t *testing.T, options controlplane.Options) *running {
	t.Helper()
	server, err := controlplane.New(options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{server, t, cancel, make(chan error, 1)}
	go func() { r.ended <- server.Run(ctx) }()
	t.Cleanup(r.stop)
	select {
	case <-server.Ready():
	case err := <-r.ended:
		r.ended <- err
		t.Fatalf("the server didn't start: %v", err)
	case <-time.After(await.Deadline):
		t.Fatal("the server isn't ready")
	}
	return r
}

// stop stops the server, and fails the test if Run returns an error.
func (r *running) stop() {
	r.t.Helper()
	r.cancel()
	select {
	case err := <-r.ended:
		r.ended <- nil
		if err != nil {
			r.t.Errorf("the server ended with: %v", err)
		}
	case <-time.After(await.Deadline):
		r.t.Fatal("the server doesn't end")
	}
}

// runFails runs a server that can't start, and returns the error.
func runFails(t *testing.T, options controlplane.Options) error {
	t.Helper()
	server, err := controlplane.New(options)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), await.Deadline)
	defer cancel()
	err = server.Run(ctx)
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the server started, or hangs: %v", err)
	}
	select {
	case <-server.Ready():
		t.Error("a server that failed is ready")
	default:
	}
	return err
}

// clients has each kind of client for one server.
type clients struct {
	typed    kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
	crds     apiextensions.Interface
}

func connect(t *testing.T, config *rest.Config) clients {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var c clients
	var err error
	c.typed, err = kubernetes.NewForConfig(config)
	check(err)
	c.dynamic, err = dynamic.NewForConfig(config)
	check(err)
	c.metadata, err = metadata.NewForConfig(config)
	check(err)
	c.crds, err = apiextensions.NewForConfig(config)
	check(err)
	return c
}

// newNamespace creates an empty namespace.
func newNamespace(t *testing.T, c clients) string {
	t.Helper()
	ns, err := c.typed.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
