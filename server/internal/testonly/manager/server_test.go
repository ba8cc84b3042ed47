package manager_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/operator"
	"github.com/keepwatch/keepwatch/operator/manager"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// api is the server of all tests.
var (
	api     *rest.Config
	clients *kubernetes.Clientset
)

// asProgram names the namespace of a program that the test binary is run as.
const asProgram = "MANAGER_TEST_NAMESPACE"

func TestMain(m *testing.M) {
	if namespace := os.Getenv(asProgram); namespace != "" {
		manager.Main(program(namespace))
	}
	os.Exit(testMain(m))
}

// program returns an operator that answers each ConfigMap of a namespace.
func program(namespace string) *operator.Operator {
	op := operator.New("configmaps", operator.Namespaces(namespace), operator.ShutdownGrace(time.Second))
	operator.OnCreate(op, func(_ context.Context, r *operator.Request[*corev1.ConfigMap]) error {
		r.Patch.Set("data.answer", "42")
		return nil
	}, operator.ID("answer"))
	return op
}

func testMain(m *testing.M) int {
	klog.SetLogger(logr.Discard())
	ignore := []goleak.Option{
		goleak.IgnoreCurrent(),
		// A timer of the server's watch cache: each read at a revision leaves one for 3 seconds.
		goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"),
	}
	server, err := controlplane.New(controlplane.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	select {
	case <-server.Ready():
	case err := <-ended:
		fmt.Fprintln(os.Stderr, "the server didn't start:", err)
		return 1
	}
	api = rest.CopyConfig(server.RESTConfig())
	api.QPS = -1
	if clients, err = kubernetes.NewForConfig(api); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		fmt.Fprintln(os.Stderr, "the server ended with:", err)
		return 1
	}
	if err := goleak.Find(ignore...); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// newNamespace creates a namespace for one test.
func newNamespace(t *testing.T) string {
	t.Helper()
	ns, err := clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}
