package follow

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/internal/startup"
	"github.com/keepwatch/keepwatch/operator/manager"
)

// checkLease checks --leader-elect.
func checkLease(lease string) error {
	namespace, name, _ := strings.Cut(lease, "/")
	if lease != "" && (namespace == "" || name == "" || strings.Contains(name, "/")) {
		return fmt.Errorf("--leader-elect must be NAMESPACE/NAME of a Lease, not %q", lease)
	}
	return nil
}

// whenElected calls run when this process is elected among all with the same Lease. It returns the reason of the end,
// never nil. A server that refuses the first read of the Lease, or the first write, ends it, as one that refuses a
// resource would.
func (o *syncOptions) whenElected(ctx context.Context, report *syncReport, endpoint *syncEndpoint,
	run func(context.Context) error) error {
	if o.lease == "" {
		return run(ctx)
	}
	config, err := cluster.Connection(o.Config)
	if err != nil {
		return err
	}
	endpoint.setStandby(true)
	report.printf("waits until it is elected by the Lease %s", o.lease)
	namespace, name, _ := strings.Cut(o.lease, "/")
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	allowed := map[bool]bool{} // whether a read, and a write, has succeeded
	answered := func(writes bool, err error) {
		if err == nil {
			allowed[writes] = true
			return
		}
		if err = fmt.Errorf("the Lease %s: %w", o.lease, err); startup.Final(err) && !allowed[writes] {
			refuse(err)
			return
		}
		report.printf("%v; retrying", err)
	}
	lease := manager.Lease{Namespace: namespace, Name: name, Answered: answered}
	err = cluster.LeavePlugin(ctx, o.Config, func() error {
		return manager.Elected(ctx, config, lease, func(ctx context.Context) error {
			endpoint.setStandby(false)
			report.printf("elected")
			return run(ctx)
		})
	})
	switch {
	case errors.Is(err, manager.ErrLeadershipLost):
		return fmt.Errorf("the Lease %s was not renewed in time: another process may continue", o.lease)
	case err == nil:
		return context.Cause(ctx)
	}
	return err
}
