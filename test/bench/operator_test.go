package bench

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/test/peer"
	"github.com/keepwatch/keepwatch/test/reconcile"
)

var gadgets = flag.Int("gadgets", 10_000, "how many objects operators are measured with")

// BenchmarkOperators compares the operator of package reconcile on Keepwatch and on
// controller-runtime, on a real kube-apiserver and each in its own process: from its start
// until every existing object is handled. An iteration measures each once and prints a
// table, with ratios to controller-runtime. The server has more objects after each and
// slows down, so each iteration begins with another operator. See -gadgets.
func BenchmarkOperators(b *testing.B) {
	server := peer.Kubernetes(b)
	if err := reconcile.Define(b.Context(), server.Config()); err != nil {
		b.Fatal(err)
	}
	program := filepath.Join(b.TempDir(), "reconciled")
	if out, err := exec.Command("go", "build", "-o", program, "./reconciled").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for round := 0; b.Loop(); round++ {
		measured := map[string]operated{}
		for i := range operators {
			by := operators[(round+i)%len(operators)]
			measured[by] = operate(b, server, program, by, fmt.Sprintf("%s-%d", by, round))
		}
		base := measured[operators[0]]
		var table strings.Builder
		fmt.Fprintf(&table, "%-22s%12s%8s%12s%8s%10s%8s%12s%8s\n", "", "handled s", "", "requests", "", "CPU s", "",
			"peak MB", "")
		for _, by := range operators {
			o := measured[by]
			fmt.Fprintf(&table, "%-22s%12.2f%8.2f%12d%8.2f%10.2f%8.2f%12d%8.2f\n", by,
				o.took.Seconds(), o.took.Seconds()/base.took.Seconds(), o.requests, float64(o.requests)/float64(base.requests),
				o.cpu.Seconds(), o.cpu.Seconds()/base.cpu.Seconds(), o.peak>>20, float64(o.peak)/float64(base.peak))
		}
		b.Logf("%d objects; beside each figure its part of controller-runtime's\n%s", *gadgets, table.String())
	}
}

// operators are the compared programs, the base first.
var operators = []string{"controller-runtime", "keepwatch", "keepwatch-in-status"}

// operated is the measurement of one operator.
type operated struct {
	took, cpu time.Duration
	requests  int
	peak      int64
}

func operate(b *testing.B, server *peer.Server, program, by, namespace string) (o operated) {
	b.Helper()
	if err := reconcile.Fill(b.Context(), server.Config(), namespace, *gadgets); err != nil {
		b.Fatal(err)
	}
	in, stdin, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	defer stdin.Close()
	defer in.Close()
	var out strings.Builder
	log := filepath.Join(b.TempDir(), "log")
	began := time.Now()
	p, err := peer.Start(peer.Command{
		Path: program, Args: []string{"-kubeconfig", server.Kubeconfig(), "-by", by, "-namespace", namespace},
		Log: log, Stdin: in, Stdout: &out,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Kill()
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Minute)
	defer cancel()
	go func() {
		select {
		case <-p.Done(): // the process has ended
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := reconcile.Done(ctx, server.Config(), namespace, *gadgets); err != nil {
		text, _ := os.ReadFile(log)
		b.Fatalf("%s: %v: %s", by, err, text)
	}
	o.took = time.Since(began)
	memory, err := p.Memory()
	if err != nil {
		b.Fatal(err)
	}
	o.peak = memory.Peak
	stdin.Close()
	if code := p.ExitCode(); code != 0 {
		text, _ := os.ReadFile(log)
		b.Fatalf("%s exits with %d: %s", by, code, text)
	}
	o.cpu = p.CPU()
	byVerb := map[string]int{}
	if err := json.Unmarshal([]byte(out.String()), &byVerb); err != nil {
		b.Fatalf("%s: %v: %q", by, err, out.String())
	}
	for _, n := range byVerb {
		o.requests += n
	}
	b.Logf("%s: %v", by, byVerb)
	return o
}
