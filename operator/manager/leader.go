package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/keepwatch/keepwatch/operator"
)

// ErrLeadershipLost is the error of an elected replica that could not renew its lease in
// time.
var ErrLeadershipLost = errors.New("the leader election was lost")

// Lease names the Lease by which replicas elect one of them.
type Lease struct {
	Namespace, Name string
	// Identity distinguishes this replica from others. The default is the host's name and
	// a random UUID.
	Identity string
}

// The times of elections are kube-controller-manager's defaults.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
	// leaseMargin is the time between the loss of a lease and the election of another
	// replica.
	leaseMargin = leaseDuration - renewDeadline
)

// Elected calls run when this replica is elected. When run returns, Elected releases the
// lease, so that another replica is elected at once, and returns run's error. It returns
// nil if ctx is done before the election. If the lease is lost, the context of run ends
// with the cause [operator.StopWithin] of ErrLeadershipLost and 5 s, and Elected returns
// ErrLeadershipLost, joined with run's error.
func Elected(ctx context.Context, cfg *rest.Config, lease Lease, run func(context.Context) error) error {
	return elected(ctx, cfg, lease, electionTimes{leaseDuration, renewDeadline, retryPeriod}, run)
}

type electionTimes struct{ lease, renew, retry time.Duration }

func elected(ctx context.Context, cfg *rest.Config, lease Lease, times electionTimes,
	run func(context.Context) error) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	if lease.Identity == "" {
		host, _ := os.Hostname()
		lease.Identity = host + "_" + string(uuid.NewUUID())
	}
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	leading, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	won := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: lease.Identity},
		},
		LeaseDuration: times.lease, RenewDeadline: times.renew, RetryPeriod: times.retry,
		ReleaseOnCancel: true, Name: lease.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(won) },
			OnStoppedLeading: func() { lost(operator.StopWithin(ErrLeadershipLost, leaseMargin)) },
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	var election sync.WaitGroup
	election.Go(func() { elector.Run(electing) })
	defer election.Wait()
	defer stop()
	select {
	case <-won:
	case <-leading.Done():
		return nil // ctx is done: the election cannot be lost before it is won
	}
	err = run(leading)
	if errors.Is(context.Cause(leading), ErrLeadershipLost) {
		return errors.Join(ErrLeadershipLost, err)
	}
	return err
}
