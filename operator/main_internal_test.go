package operator

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func sleepy() *Operator {
	op := New("widgets.example.com")
	OnCreate(op, func(context.Context, *thing) error { return nil })
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
		{[]string{"--kubeconfig=" + kubeconfig(t, "https://127.0.0.1:1"), "--metrics-bind-address=0", "--health-probe-bind-address=" + taken.Addr().String()}, codeError, "address already in use"},
	} {
		var stderr bytes.Buffer
		code := run(t.Context(), append([]string{"/bin/op"}, test.args...), &stderr, []*Operator{sleepy()})
		if code != test.code || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%q: %d, %s; want %d, %q", test.args, code, stderr.String(), test.code, test.want)
		}
	}
}

func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
  clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {token: t}}]}`, server)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestLeaseOfAPod(t *testing.T) {
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

// sick is a feed that can't follow.
type sick struct{ *world }

func (sick) healthy(time.Duration) error { return fmt.Errorf("STALLED for 3m0s") }

func TestEndpoints(t *testing.T) {
	op := sleepy()
	shown := &endpoints{health: "127.0.0.1:0", metrics: "127.0.0.1:0", ops: []*Operator{op}}
	serve, err := shown.listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx) }()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	ask := func(h http.Handler) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		body, _ := io.ReadAll(w.Body)
		return w.Code, string(body)
	}
	if code, body := ask(HealthHandler(op)); code != http.StatusOK || body != "widgets.example.com: ok\n" {
		t.Errorf("%d %s", code, body)
	}
	op.running.Store(&engine{Operator: op, source: sick{}})
	if code, body := ask(HealthHandler(op)); code != http.StatusInternalServerError || !strings.Contains(body, "STALLED for 3m0s") {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := ask(http.HandlerFunc(shown.ready)); code != http.StatusOK {
		t.Errorf("not ready: %d", code)
	}
	shown.ending.Store(true)
	if code, _ := ask(http.HandlerFunc(shown.ready)); code != http.StatusInternalServerError {
		t.Errorf("ready while it ends: %d", code)
	}
}
