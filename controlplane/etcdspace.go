package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"
)

// space watches the size of the embedded etcd's database. When the database reaches its quota, etcd
// raises the NOSPACE alarm and refuses every write except deletes, until somebody compacts,
// defragments and disarms. space does that as soon as it can gain room by it. It also
// defragments a large file of which most is free.
type space struct {
	client *clientv3.Client
	etcd   pb.MaintenanceClient
	// minDefrag is the size of the smallest file that is defragmented without an alarm.
	minDefrag int64

	// full is whether the last status had the alarm.
	full bool
	// seen is etcd's revision at the last status: watches in this process have received it by now.
	seen int64
	// compacted is the newest revision that space compacted.
	compacted int64
	// busy is when etcd last had many writes; at the beginning, the start.
	busy time.Time
	// resume is when to try again after an error.
	resume time.Time
}

const (
	// spaceInterval is the time between two looks at etcd's status.
	spaceInterval = time.Second
	// spaceRetry is the pause after a compaction or defragmentation that failed, on a full disk for instance.
	spaceRetry = time.Minute
	// busyWrites is the number of writes in spaceInterval above which etcd is busy. A
	// defragmentation stops reads and writes of etcd, so that it waits for quietTime without.
	busyWrites = 10
	quietTime  = time.Minute
	// minDefrag is 100 MiB: below, a defragmentation gains nothing that matters.
	minDefrag = 100 << 20
)

// roomy and tight are the parts of the quota, in percent, between which space neither acts nor
// gives up: it defragments when no more than roomy is in use, and disarms when the file is below tight.
const (
	roomy = 90
	tight = 95
)

func newSpace(client *clientv3.Client) *space {
	return &space{client: client, etcd: pb.NewMaintenanceClient(client.ActiveConnection()), minDefrag: minDefrag, busy: time.Now()}
}

// run works until ctx ends.
func (s *space) run(ctx context.Context) {
	tick := time.NewTicker(spaceInterval)
	defer tick.Stop()
	for {
		if err := s.look(ctx); err != nil && ctx.Err() == nil {
			s.resume = time.Now().Add(spaceRetry)
			utilruntime.HandleErrorWithContext(ctx, err, "Making room in etcd is retried", "after", spaceRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look reads etcd's status and does what it calls for.
func (s *space) look(ctx context.Context) error {
	status, err := s.etcd.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return nil // whoever reads or writes reports that etcd is unavailable
	}
	defer func() { s.seen = status.Header.Revision }()
	if status.Header.Revision-s.seen > busyWrites {
		s.busy = time.Now()
	}
	s.report(ctx, hasNoSpace(status))
	switch {
	case time.Now().Before(s.resume):
		return nil
	case s.full:
		return s.free(ctx, status)
	case status.DbSize >= s.minDefrag && status.DbSizeInUse < status.DbSize/2 && time.Since(s.busy) > quietTime:
		return s.defragment(ctx)
	}
	return nil
}

// report logs a change of the alarm.
func (s *space) report(ctx context.Context, full bool) {
	switch {
	case full && !s.full:
		utilruntime.HandleErrorWithContext(ctx, errNoSpace, "etcd refuses writes")
	case s.full && !full:
		klog.FromContext(ctx).Error(nil, "etcd has room again and takes writes") // an error's end, and shown like it
	}
	s.full = full
}

// free compacts etcd's history, which goes before any write does, and then defragments and
// disarms if that gains enough room.
func (s *space) free(ctx context.Context, status *pb.StatusResponse) error {
	if s.seen > s.compacted {
		if _, err := s.client.Compact(ctx, s.seen, clientv3.WithCompactPhysical()); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
			return fmt.Errorf("compact etcd: %w", err)
		}
		s.compacted = s.seen
		return nil // etcd knows the new size at its next commit; the next look sees it
	}
	quota := status.DbSizeQuota
	if status.DbSize > quota/100*tight {
		if status.DbSizeInUse > quota/100*roomy {
			return nil
		}
		return s.defragment(ctx)
	}
	member := &clientv3.AlarmMember{MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE}
	if _, err := s.client.AlarmDisarm(ctx, member); err != nil {
		return fmt.Errorf("disarm etcd's alarm: %w", err)
	}
	return nil
}

func (s *space) defragment(ctx context.Context) error {
	if _, err := s.etcd.Defragment(ctx, &pb.DefragmentRequest{}); err != nil {
		return fmt.Errorf("defragment etcd: %w", err)
	}
	return nil
}

// hasNoSpace reports whether the NOSPACE alarm of any member is raised.
func hasNoSpace(status *pb.StatusResponse) bool {
	for _, alarm := range status.Errors {
		if strings.Contains(alarm, pb.AlarmType_NOSPACE.String()) {
			return true
		}
	}
	return false
}

// errNoSpace is what a write is refused with. The status is kube-apiserver's, the message is not.
var errNoSpace = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure,
	Code:   http.StatusInternalServerError,
	Reason: metav1.StatusReasonInternalError,
	Message: "etcd has reached its space quota (alarm NOSPACE) and refuses creates and updates; reads, watches and deletes go on: " +
		"delete objects, or give etcd a larger quota (--quota-backend-bytes)",
	Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: causeNoSpace, Message: rpctypes.ErrNoSpace.Error()}}},
}}

// causeNoSpace is how a client knows errNoSpace.
const causeNoSpace metav1.CauseType = "EtcdNoSpace"

// spaceErrors is an etcd3 storage whose writes fail with errNoSpace where etcd says so in its words.
type spaceErrors struct{ closable }

func (s spaceErrors) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return spaceError(s.closable.Create(ctx, key, obj, out, ttl))
}

func (s spaceErrors) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions, update apistorage.UpdateFunc, cached runtime.Object) error {
	return spaceError(s.closable.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, cached))
}

func spaceError(err error) error {
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return errNoSpace
	}
	return err
}
