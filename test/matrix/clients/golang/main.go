// Command golang follows the ConfigMaps of a namespace with one of the clients in Go, and prints a
// clients.Line for each event that its user sees.
//
//	golang CLIENT [PATH OF THE CLIENT'S PROGRAM] KUBECONFIG NAMESPACE
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// target is what a client follows.
type target struct {
	program    string // of a client that is a program itself
	kubeconfig string
	config     *rest.Config
	namespace  string
}

// followers return when ctx is done, or with the client's own end.
var followers = map[string]func(context.Context, target) error{
	"informer":           informer,
	"retrywatcher":       retryWatcher,
	"controller-runtime": controllerRuntime,
	"kubectl-get":        kubectlGet,
	"kubectl-wait":       kubectlWait,
	"keepwatch-watch":    keepwatchWatch,
	"keepwatch-informer": keepwatchInformer,
	"keepwatch-operator": keepwatchOperator,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		report(failed(err))
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 3 || followers[args[0]] == nil {
		return fmt.Errorf("usage: golang CLIENT [PROGRAM] KUBECONFIG NAMESPACE, not %q", args)
	}
	t := target{kubeconfig: args[len(args)-2], namespace: args[len(args)-1]}
	if len(args) == 4 {
		t.program = args[1]
	}
	var err error
	if t.config, err = clientcmd.BuildConfigFromFlags("", t.kubeconfig); err != nil {
		return err
	}
	return followers[args[0]](ctx, t)
}
