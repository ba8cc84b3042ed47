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
// If the user of the kubeconfig has a credential plugin, it leaves run as Leave does, and what run had to do at its end
// is not done, as after a SIGKILL. Without a plugin it waits for run.
func LeavePlugin(ctx context.Context, flags *genericclioptions.ConfigFlags, run func() error) error {
	if config, err := Connection(flags); err != nil || config.ExecProvider == nil {
		return run()
	}
	return Leave(ctx, run)
}

// Leave calls run, which has nothing to do at its end, and returns its error, or Left if it has not returned 10 s after
// the end of ctx. The process must end then.
//
// client-go runs a credential plugin of a kubeconfig before it looks at the context of a request, and again for each
// request: one that waits for a browser, or for a network, would keep the process from ending.
func Leave(ctx context.Context, run func() error) error {
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
		return Left{context.Cause(ctx)}
	}
}

// Left is the error for a run that goes on: a request has not ended. It wraps why its context has ended.
type Left struct{ Cause error }

func (l Left) Error() string { return l.Cause.Error() }
func (l Left) Unwrap() error { return l.Cause }
