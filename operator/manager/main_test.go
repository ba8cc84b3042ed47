package manager

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/operator"
)

// idle returns an operator that does not run.
func idle() *operator.Operator {
	op := operator.New("widgets.example.com")
	operator.OnCreate(op, func(context.Context, *operator.Request[*metav1.PartialObjectMetadata]) error { return nil })
	return op
}

func TestCommandLine(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	quiet := []string{"--health-probe-bind-address=0", "--metrics-bind-address=0"}
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--help"}, 0, "--leader-elect-resource-name"},
		{[]string{"--nonsense"}, codeUsage, "unknown flag: --nonsense"},
		{[]string{"more"}, codeUsage, `unexpected argument "more"`},
		{append(quiet, "--kubeconfig=/does/not/exist"), codeError, "/does/not/exist"},
		{append(quiet, "--log-format=xml"), codeError, `log format "xml"`},
		{append(quiet, "--log-level=loud"), codeUsage, "loud"},
		{[]string{"--kubeconfig=testdata/unreachable.kubeconfig", "--metrics-bind-address=0", "--health-probe-bind-address=" +
			taken.Addr().String()}, codeError, "address already in use"},
	} {
		c := exec.Command(os.Args[0], test.args...) // its log is the whole process's
		c.Env = append(os.Environ(), asProgram+"=default")
		var stderr bytes.Buffer
		c.Stderr = &stderr
		if err := c.Run(); err != nil && c.ProcessState == nil {
			t.Fatal(err)
		}
		code := c.ProcessState.ExitCode()
		if code != test.code || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%q: %d, %s; want %d, %q", test.args, code, stderr.String(), test.code, test.want)
		}
	}
}

// Main reports operators that it or Run refuses, and does not panic at their metrics.
func TestOperatorsThatRunRefuses(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join("testdata", "unreachable.kubeconfig"))
	for metrics, want := range map[string]string{
		"127.0.0.1:0": "two operators have the name widgets.example.com: their metrics cannot be told apart; set Prefix",
		"0":           "operators of widgets.example.com: two have the prefix keepwatch.io; set Prefix",
	} {
		c := exec.Command(os.Args[0], "--metrics-bind-address="+metrics, "--health-probe-bind-address=0")
		c.Env = append(os.Environ(), asProgram+"=twice")
		text, err := c.CombinedOutput()
		if c.ProcessState.ExitCode() != codeError || !strings.Contains(string(text), want) {
			t.Errorf("%v: %s", err, text)
		}
	}
}

func TestLeaseName(t *testing.T) {
	long := make([]*operator.Operator, 10)
	for n := range long {
		long[n] = operator.New(fmt.Sprintf("averylongresourcename%d.example.com", n))
	}
	names := map[string]bool{}
	for want, ops := range map[string][]*operator.Operator{
		"widgets.example.com":     {operator.New("widgets.example.com")},
		"pods-nodes":              {operator.New("pods"), operator.New("nodes")},
		"pods-a.example.com-pods": {operator.New("pods", operator.Prefix("a.example.com")), operator.New("pods")},
		"":                        long, "ten": long[:9],
	} {
		got := leaseName(ops)
		if err := (Lease{Namespace: "default", Name: got}).check(); err != nil {
			t.Error(err)
		}
		if len(ops) < 9 && got != want || names[got] || leaseName(ops) != got {
			t.Errorf("%q, want %q", got, want)
		}
		names[got] = true
	}
}

// A Lease that no server stores is an error at once: nobody would ever be elected.
func TestImpossibleLease(t *testing.T) {
	for _, lease := range []Lease{{Name: "Widgets", Namespace: "default"}, {Name: "widgets", Namespace: "a.b"}, {}} {
		err := Elected(t.Context(), newLeases(t), lease, func(context.Context) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "of the Lease") {
			t.Errorf("%+v: %v", lease, err)
		}
	}
}

func TestLeaseInThePodsNamespace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "namespace")
	if err := os.WriteFile(file, []byte("prod\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &command{lease: Lease{Name: "l"}}
	if l := c.leaseIn(file); l.Namespace != "prod" {
		t.Errorf("%+v", l)
	}
	if l := c.leaseIn(file + "-none"); l.Namespace != "default" {
		t.Errorf("%+v", l)
	}
	c.lease.Namespace = "mine"
	if l := c.leaseIn(file); l.Namespace != "mine" {
		t.Errorf("%+v", l)
	}
}
