// Reconciled is the operator of package reconcile, on controller-runtime or on Keepwatch,
// as a process that is measured. It runs until standard input ends, and then writes the
// numbers of its requests to standard output, as JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/keepwatch/keepwatch/operator"
	"github.com/keepwatch/keepwatch/test/reconcile"
)

func main() {
	flags := flag.NewFlagSet("reconciled", flag.ExitOnError) // controller-runtime adds to the common ones
	kubeconfig := flags.String("kubeconfig", "", "the server")
	by := flags.String("by", "", "controller-runtime, keepwatch or keepwatch-in-status")
	namespace := flags.String("namespace", "", "whose gadgets to handle")
	workers := flags.Int("workers", 10, "how many at a time")
	_ = flags.Parse(os.Args[1:])
	ctrl.SetLogger(logr.Discard())
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError})))
	if err := run(*kubeconfig, *by, *namespace, *workers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, by, namespace string, workers int) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1
	made := &requests{byVerb: map[string]int{}}
	cfg.Wrap(made.wrap)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := operate(ctx, cfg, by, namespace, workers); err != nil {
		return err
	}
	return made.report(os.Stdout)
}

func operate(ctx context.Context, cfg *rest.Config, by, namespace string, workers int) error {
	switch by {
	case "controller-runtime":
		return reconcile.ControllerRuntime(ctx, cfg, namespace, workers)
	case "keepwatch":
		return reconcile.Keepwatch(ctx, cfg, namespace, workers)
	case "keepwatch-in-status":
		return reconcile.Keepwatch(ctx, cfg, namespace, workers, operator.ProgressInStatus("status.operator"))
	}
	return fmt.Errorf("an operator by %q", by)
}

// requests counts the requests of the operator.
type requests struct {
	mu     sync.Mutex
	byVerb map[string]int
}

func (r *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		r.mu.Lock()
		r.byVerb[request.Method]++
		r.mu.Unlock()
		return next.RoundTrip(request)
	})
}

func (r *requests) report(to io.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return json.NewEncoder(to).Encode(r.byVerb)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
