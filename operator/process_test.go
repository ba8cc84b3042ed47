package operator_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keepwatch/keepwatch/operator"
)

// The test binary is also the program that the tests below run, where this names the
// namespace to work in.
const asProgram = "OPERATOR_TEST_NAMESPACE"

func init() {
	if namespace := os.Getenv(asProgram); namespace != "" {
		operator.Main(program(namespace))
	}
}

// program has two handlers of the creation and two of the deletion, which say that they
// are called.
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

// kubeconfig is a file for a server.
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

// child is the program while it runs.
type child struct {
	*exec.Cmd
	lines chan string // what it prints
	log   *record     // what it logs
}

func spawn(t *testing.T, p *place, cfg *rest.Config, log *record, args ...string) *child {
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

func TestMainServesAndEndsAsAsked(t *testing.T) {
	p := newPlace(t)
	health, metrics := freePort(t), freePort(t)
	var log record
	c := spawn(t, p, api, &log, "--health-probe-bind-address="+health, "--metrics-bind-address="+metrics, "--leader-elect",
		"--leader-elect-resource-namespace="+p.name, "--log-format=json")
	p.create("one", "{}")
	p.settled("one")
	for url, want := range map[string]string{
		"http://" + health + "/healthz":  "widgets.example.com: ok",
		"http://" + health + "/readyz":   "ok",
		"http://" + metrics + "/metrics": `keepwatch_operator_handler_duration_seconds_count{controller="widgets.example.com",handler="first",result="success"} 1`,
	} {
		response, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d, want %q in\n%s", url, response.StatusCode, want, body)
		}
		if strings.HasSuffix(url, "/metrics") {
			for _, name := range []string{"workqueue_depth", "controller_runtime_reconcile_total", "keepwatch_watch_"} {
				if !strings.Contains(string(body), name) {
					t.Errorf("no %s in the metrics", name)
				}
			}
		}
	}
	lease, err := clients.CoordinationV1().Leases(p.name).Get(t.Context(), "widgets.example.com", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		t.Errorf("the lease: %v, %v", lease, err)
	}
	_ = c.Process.Signal(syscall.SIGTERM)
	for range c.lines {
	}
	if err := c.Wait(); err != nil {
		t.Errorf("it ends with %v:\n%s", err, log.logged())
	}
	lease, err = clients.CoordinationV1().Leases(p.name).Get(t.Context(), "widgets.example.com", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "" {
		t.Errorf("the lease is not given back: %v, %v", lease, err)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestOneOfTwoIsElected(t *testing.T) {
	p := newPlace(t)
	lease := operator.Lease{Namespace: p.name, Name: "one"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, second := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 2)
	elect := func(ctx context.Context, run func(context.Context) error) {
		ended <- operator.Elected(ctx, api, lease, run)
	}
	work := func(ctx context.Context) error { <-ctx.Done(); return nil }
	leading, stop := context.WithCancel(ctx)
	defer stop()
	go elect(leading, func(ctx context.Context) error { close(first); return work(ctx) })
	<-first
	go elect(ctx, func(ctx context.Context) error { close(second); return work(ctx) })
	select {
	case <-second:
		t.Fatal("two are elected")
	case <-time.After(100 * time.Millisecond):
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	select {
	case <-second:
	case <-time.After(deadline):
		t.Fatal("nobody takes over")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestALostElectionIsFatal(t *testing.T) {
	p := newPlace(t)
	down := make(chan struct{})
	cfg := rest.CopyConfig(api)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return breaking{next, down} })
	err := operator.ElectedFor(t.Context(), cfg, operator.Lease{Namespace: p.name, Name: "one"}, 3*time.Second, func(ctx context.Context) error {
		close(down)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, operator.ErrLeadershipLost) {
		t.Errorf("it ends with %v", err)
	}
}

// breaking is a network that is down from some moment on.
type breaking struct {
	http.RoundTripper
	down chan struct{}
}

func (b breaking) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-b.down:
		return nil, errors.New("the network is down")
	default:
		return b.RoundTripper.RoundTrip(r)
	}
}
