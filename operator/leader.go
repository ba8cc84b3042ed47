package operator

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
)

// ErrLeadershipLost is why an operator stops that was elected, and could not renew
// its lease in time.
var ErrLeadershipLost = errors.New("the leader election was lost")

// Lease says by which Lease replicas elect the one that works.
type Lease struct {
	Namespace, Name string
	// Identity tells this replica from others; by default it is the host's name and
	// something random.
	Identity string
}

// The times of elections, as kube-controller-manager has them.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
	// leaseMargin is how long a leader that was lost may go on: nobody else can be
	// elected before.
	leaseMargin = leaseDuration - renewDeadline
)

// Elected calls run when this replica is elected, and gives the lease back when run
// has returned, so that another one takes over at once. It returns what run returns,
// nil if ctx was done before. If the lease is lost, the context of run ends with
// ErrLeadershipLost as its cause, and that is returned.
func Elected(ctx context.Context, cfg *rest.Config, lease Lease, run func(context.Context) error) error {
	return elected(ctx, cfg, lease, electionTimes{leaseDuration, renewDeadline, retryPeriod}, run)
}

type electionTimes struct{ lease, renew, retry time.Duration }

func elected(ctx context.Context, cfg *rest.Config, lease Lease, times electionTimes, run func(context.Context) error) error {
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
			OnStoppedLeading: func() { lost(ErrLeadershipLost) },
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
		return nil // ctx is done: the election ends only by stop before it was won
	}
	err = run(leading)
	if errors.Is(context.Cause(leading), ErrLeadershipLost) {
		return errors.Join(ErrLeadershipLost, err)
	}
	return err
}
