package manager_test

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/operator"
	"github.com/keepwatch/keepwatch/operator/manager"
	"github.com/keepwatch/keepwatch/server/internal/testonly/testmain"
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
	os.Exit(testmain.Run(m, prepare))
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

// prepare creates the clients of the tests.
func prepare(_ context.Context, config *rest.Config) (err error) {
	api = config
	clients, err = kubernetes.NewForConfig(api)
	return err
}

// newNamespace creates a namespace for one test.
func newNamespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	ns, err := clients.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}
