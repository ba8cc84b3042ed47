package operator_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// program has two handlers of a creation that take a while, and one of the deletion.
// Each says what it does by a ConfigMap, and a success that was written can be seen by
// what is written with it.
func program(namespace string) *operator.Operator {
	op := operator.New("widgets.example.com", operator.Namespaces(namespace), operator.ShutdownGrace(time.Second))
	for _, id := range []string{"first", "second"} {
		operator.OnCreate(op, func(_ context.Context, r *request) error {
			fmt.Println("called", id, r.Object.Name)
			r.Patch.Status(id, "done")
			return nil
		}, operator.ID(id))
	}
	operator.OnDelete(op, func(_ context.Context, r *request) error {
		fmt.Println("called end", r.Object.Name)
		return nil
	}, operator.ID("end"))
	return op
}

// kubeconfig is a file for the tests' server.
func kubeconfig(t *testing.T) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: api.Host, CertificateAuthorityData: api.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: api.BearerToken}
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

func spawn(t *testing.T, p *place, log *record, args ...string) *child {
	t.Helper()
	args = append([]string{"--kubeconfig", kubeconfig(t)}, args...)
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

// TestKilledAtRandomPoints kills the program again and again. Each handler is called at
// least once; not again after its success was written; and no finalizer is left.
func TestKilledAtRandomPoints(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	p := newPlace(t)
	const objects, kills = 40, 6
	for i := range objects {
		p.create(fmt.Sprintf("w%d", i), "{}")
	}
	called := map[string]int{}
	var log record
	for range kills {
		done := written(p)
		c := spawn(t, p, &log, noEndpoints...)
		for range 1 + random.IntN(25) {
			select {
			case line, ok := <-c.lines:
				if ok {
					count(t, called, done, line)
				}
			case <-time.After(deadline):
				t.Fatalf("the program does nothing:\n%s", log.logged())
			}
		}
		_ = c.Process.Kill()
		for line := range c.lines {
			count(t, called, done, line)
		}
		_ = c.Wait()
	}
	c := spawn(t, p, &log, noEndpoints...)
	var drained sync.WaitGroup
	done := written(p)
	drained.Go(func() {
		for line := range c.lines {
			count(t, called, done, line)
		}
	})
	for i := range objects {
		p.settled(fmt.Sprintf("w%d", i))
		p.delete(fmt.Sprintf("w%d", i))
	}
	for i := range objects {
		p.gone(fmt.Sprintf("w%d", i))
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	drained.Wait()
	if err := c.Wait(); err != nil {
		t.Errorf("asked to end, it ends with %v:\n%s", err, log.logged())
	}
	for i := range objects {
		for _, id := range []string{"first", "second", "end"} {
			if n := called[fmt.Sprintf("called %s w%d", id, i)]; n < 1 {
				t.Errorf("%s of w%d was never called", id, i)
			}
		}
	}
}

// written are the handlers whose success is on the objects, by what they print.
func written(p *place) map[string]bool {
	p.t.Helper()
	list, err := p.widgets().List(p.t.Context(), metav1.ListOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	done := map[string]bool{}
	for _, w := range list.Items {
		notes := w.GetAnnotations()
		for _, id := range []string{"first", "second"} {
			if notes[operator.DefaultPrefix+"/last-handled-configuration"] != "" || strings.Contains(notes[operator.DefaultPrefix+"/"+id], `"success":true`) {
				done["called "+id+" "+w.GetName()] = true
			}
		}
	}
	return done
}

func count(t *testing.T, called map[string]int, done map[string]bool, line string) {
	called[line]++
	if done[line] {
		t.Errorf("%q after its success was written", line)
	}
}

func TestMainServesAndEndsAsAsked(t *testing.T) {
	p := newPlace(t)
	health, metrics := freePort(t), freePort(t)
	var log record
	c := spawn(t, p, &log, "--health-probe-bind-address="+health, "--metrics-bind-address="+metrics, "--leader-elect",
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
	cfg, _ := counting()
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
