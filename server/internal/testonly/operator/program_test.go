package operator_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keepwatch/keepwatch/operator"
	"github.com/keepwatch/keepwatch/operator/manager"
)

// asProgram names the namespace of a program that the test binary is run as.
const asProgram = "OPERATOR_TEST_NAMESPACE"

func init() {
	if namespace := os.Getenv(asProgram); namespace != "" {
		manager.Main(program(namespace))
	}
}

// program returns an operator with two handlers each for creation and deletion, which print
// their calls.
func program(namespace string) *operator.Operator {
	op := operator.New("widgets.example.com", operator.Namespaces(namespace), operator.ShutdownGrace(time.Second))
	for _, id := range []string{"first", "second"} {
		operator.OnCreate(op, func(_ context.Context, r *request) error {
			fmt.Println("called", id, r.Object.Name)
			r.Patch.Status(id, "done")
			return nil
		}, operator.ID(id))
	}
	for _, id := range []string{"end", "farewell"} {
		operator.OnDelete(op, func(_ context.Context, r *request) error {
			fmt.Println("called", id, r.Object.Name)
			return nil
		}, operator.ID(id))
	}
	return op
}

// kubeconfig writes a kubeconfig file for a server.
func kubeconfig(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// child is a running program.
type child struct {
	*exec.Cmd
	lines chan string // what it prints
	log   *calls      // what it logs
}

func spawn(t *testing.T, p *testNamespace, cfg *rest.Config, log *calls, args ...string) *child {
	t.Helper()
	args = append([]string{"--kubeconfig", kubeconfig(t, cfg)}, args...)
	c := &child{exec.Command(os.Args[0], args...), make(chan string, 10_000), log}
	c.Env = append(os.Environ(), asProgram+"="+p.name)
	c.Stderr = log
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	return c
}

var noEndpoints = []string{"--health-probe-bind-address=0", "--metrics-bind-address=0"}
