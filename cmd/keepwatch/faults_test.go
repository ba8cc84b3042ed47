package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/judge/faults"
)

// TestFaults runs the command in front of a server, makes a request that its plan selects and one that it does not,
// ends it, and reads its report.
func TestFaults(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	upstream, through := filepath.Join(dir, "upstream"), filepath.Join(dir, "through")
	plan, record := filepath.Join(dir, "plan.yaml"), filepath.Join(dir, "record")
	if err := cluster.WriteKubeconfig(upstream, "upstream", &rest.Config{
		Host: server.URL, BearerToken: "secret",
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: server.Certificate().Raw})},
	}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plan, []byte("rules: [{fault: status, status: Expired, match: {resource: pods}}]"),
		0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var messages bytes.Buffer // read after the end
	go func() {
		ended <- run(ctx, []string{"faults", "--kubeconfig", upstream, "--plan", plan, "--seed", "7", "--kubeconfig-out",
			through, "--record", record}, io.Discard, &messages)
	}()
	cfg := waitForKubeconfig(t, through, ended)
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	for path, want := range map[string]int{"/api/v1/pods": 410, "/api/v1/nodes": 200} {
		response, err := client.Get(cfg.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, response.StatusCode, want)
		}
	}
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d: %s", code, messages.String())
	}
	if got := messages.String(); !strings.Contains(got, "ready at "+cfg.Host) || !strings.Contains(got, "seed 7") {
		t.Errorf("messages: %s", got)
	}
	var table, list bytes.Buffer
	if code := run(t.Context(), []string{"faults", "report", record}, &table, io.Discard); code != 0 ||
		!strings.Contains(table.String(), "met 1 × status 410 Expired") {
		t.Errorf("exit code %d, report:\n%s", code, table.String())
	}
	if code := run(t.Context(), []string{"faults", "report", record, "-o", "json"}, &list, io.Discard); code != 0 {
		t.Errorf("exit code %d", code)
	}
	var clients []faults.Client
	if err := json.Unmarshal(list.Bytes(), &clients); err != nil || len(clients) != 1 || clients[0].Requests != 2 ||
		clients[0].Lists != 2 {
		t.Errorf("%v: %s", err, list.String())
	}
	if code := run(t.Context(), []string{"faults", "--kubeconfig", upstream, "--plan", plan, "--record", record},
		io.Discard, io.Discard); code != exit.CodeError {
		t.Errorf("a record was replaced: exit code %d", code)
	}
	if replayed, err := faults.ReadPlan(filepath.Join(record, "plan.yaml")); err != nil || replayed.Seed != 7 ||
		len(replayed.Rules) != 1 {
		t.Errorf("the record's plan: %+v, %v", replayed, err)
	}
}

// waitForKubeconfig returns the configuration in a file once the command has written it.
func waitForKubeconfig(t *testing.T, file string, ended <-chan int) (cfg *rest.Config) {
	t.Helper()
	await.True(t, "the command has written the kubeconfig", func() bool {
		select {
		case code := <-ended:
			t.Fatalf("ended with %d", code)
		default:
		}
		var err error
		cfg, err = clientcmd.BuildConfigFromFlags("", file)
		return err == nil && cfg.BearerToken != ""
	})
	return cfg
}

func TestFaultsUsage(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(bad, []byte("rules: [{fautl: cut}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty.yaml")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args string
		code int
		want string
	}{
		{"faults", exit.CodeUsage, "--plan is missing"},
		{"faults --plan nothing", exit.CodeUsage, "keepwatch faults plans"},
		{"faults --plan " + bad, exit.CodeUsage, `"rules[0].fautl"`},
		{"faults --plan " + empty, exit.CodeUsage, "empty.yaml has no rules"},
		{"faults plans nothing", exit.CodeUsage, "nothing"},
		{"faults report " + t.TempDir(), exit.CodeError, "transcript.jsonl"},
		{"faults report . -o xml", exit.CodeUsage, "xml"},
	}
	for _, test := range tests {
		var stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(test.args), io.Discard, &stderr); code != test.code ||
			!strings.Contains(stderr.String(), test.want) {
			t.Errorf("%s: exit code %d, %s", test.args, code, stderr.String())
		}
	}
}

// TestFaultsPlans checks that a plan that is printed can be read as a file.
func TestFaultsPlans(t *testing.T) {
	var list bytes.Buffer
	if code := run(t.Context(), []string{"faults", "plans"}, &list, io.Discard); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, p := range faults.Plans() {
		var text bytes.Buffer
		if code := run(t.Context(), []string{"faults", "plans", p.Name}, &text, io.Discard); code != 0 ||
			!strings.Contains(list.String(), p.Incident) {
			t.Errorf("%s: exit code %d", p.Name, code)
		}
		if _, err := faults.ParsePlan(text.Bytes()); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}
