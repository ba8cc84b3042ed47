package cluster

import (
	"context"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// pluginGrace is how long a command that is to end waits for its credential plugin. The proxy ends its connections
// within that time.
const pluginGrace = 10 * time.Second

// LeavePlugin calls run, which sends requests to the cluster of the flags until ctx is done, and returns its error.
//
// client-go runs a credential plugin of the kubeconfig before it looks at the context of a request, and again for each
// request: one that waits for a browser, or for a network, would keep the process from ending. So if there is a plugin,
// and run has not returned 10 s after the end of ctx, LeavePlugin leaves it behind, and returns why ctx has ended. The
// process must end then, and what run had to do at its end is not done, as after a SIGKILL.
func LeavePlugin(ctx context.Context, flags *genericclioptions.ConfigFlags, run func() error) error {
	if config, err := Connection(flags); err != nil || config.ExecProvider == nil {
		return run()
	}
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(pluginGrace)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return context.Cause(ctx)
	}
}
