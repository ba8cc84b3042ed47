package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/operator"
	"github.com/keepwatch/keepwatch/source/kube"
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
	// Answered, if set, is called with the error of a request for the Lease, nil if it has succeeded, unless the
	// outcome of the last request of its sort was the same: one that reads, or one that writes. The election continues
	// after an error. The calls are one at a time. client-go logs each error by klog.
	Answered func(writes bool, err error)
}

// check returns an error if no server would store the Lease: nobody would ever be elected.
func (l Lease) check() error {
	if problems := validation.IsDNS1123Subdomain(l.Name); len(problems) > 0 {
		return fmt.Errorf("name of the Lease %q: %s", l.Name, strings.Join(problems, "; "))
	}
	if problems := validation.IsDNS1123Label(l.Namespace); len(problems) > 0 {
		return fmt.Errorf("namespace of the Lease %q: %s", l.Namespace, strings.Join(problems, "; "))
	}
	return nil
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
// lease, so that another replica is elected at once, and returns run's error. If that is
// [operator.ErrNotStopped], it keeps the lease: another replica is elected when it expires,
// 15 s after its last renewal. Elected returns
// nil if ctx is done before the election. If the lease is lost, the context of run ends
// with the cause [operator.StopWithin] of ErrLeadershipLost and 5 s, and Elected returns
// ErrLeadershipLost, joined with run's error.
func Elected(ctx context.Context, cfg *rest.Config, lease Lease, run func(context.Context) error) error {
	return elected(ctx, cfg, lease, electionTimes{leaseDuration, renewDeadline, retryPeriod}, run)
}

type electionTimes struct{ lease, renew, retry time.Duration }

func elected(ctx context.Context, cfg *rest.Config, lease Lease, times electionTimes,
	run func(context.Context) error) error {
	if err := lease.check(); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(electionConfig(cfg, times))
	if err != nil {
		return err
	}
	if lease.Identity == "" {
		host, _ := os.Hostname()
		lease.Identity = host + "_" + string(uuid.NewUUID())
	}
	var kept atomic.Bool // until run has stopped everything
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	leading, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	won := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &reportingLock{Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: lease.Identity},
		}, kept: &kept, answered: func(writes bool, err error) {
			if lease.Answered != nil && electing.Err() == nil { // nothing of the release
				lease.Answered(writes, err)
			}
		}},
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
	kept.Store(true)
	err = run(leading)
	kept.Store(errors.Is(err, operator.ErrNotStopped))
	if errors.Is(context.Cause(leading), ErrLeadershipLost) {
		return errors.Join(ErrLeadershipLost, err)
	}
	return err
}

// electionConfig returns cfg with a time limit of requests and, over TLS, a connection that no other client
// shares, in HTTP/1.1: a request that is not answered in time closes its connection, and the next one opens
// another. With HTTP/2 the next one would wait on the same broken connection until the lease is lost.
func electionConfig(cfg *rest.Config, times electionTimes) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = max(times.renew/2, time.Second)
	cfg.NextProtos = []string{"http/1.1"}
	return cfg
}

// reportingLock calls answered with the outcomes of requests, and does not release the Lease while kept is set. The
// election sends one request at a time.
type reportingLock struct {
	resourcelock.Interface
	kept        *atomic.Bool
	answered    func(writes bool, err error)
	read, write outcome // of the last requests
}

// outcome is that of a request.
type outcome struct {
	asked bool
	kind  keepwatch.FailureKind // 0 if the request has succeeded
}

func (l *reportingLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if !apierrors.IsNotFound(err) { // else it is created
		l.report(&l.read, err)
	}
	return record, raw, err
}

func (l *reportingLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, record)
	l.report(&l.write, err)
	return err
}

// errKept is logged by klog.
var errKept = errors.New("the Lease is kept, because work that it protects has not stopped")

func (l *reportingLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" && l.kept.Load() {
		return errKept
	}
	err := l.Interface.Update(ctx, record)
	l.report(&l.write, err)
	return err
}

// report reports err unless the last request had the same outcome, or another replica was faster, or the election ends.
func (l *reportingLock) report(last *outcome, err error) {
	now := outcome{asked: true}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), errors.Is(err, context.Canceled):
		return
	case err != nil:
		now.kind = kube.FailureOf("", err).Kind
	}
	if now != *last {
		l.answered(last == &l.write, err)
	}
	*last = now
}
