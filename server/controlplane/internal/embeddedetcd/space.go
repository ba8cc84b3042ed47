package embeddedetcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// spaceMonitor watches the size of etcd's database. When the database reaches its quota, etcd raises
// the NOSPACE alarm and refuses every write except deletes until a client compacts, defragments and
// disarms the alarm. spaceMonitor does so as soon as that frees enough space. It also defragments a
// large file of which most is free.
type spaceMonitor struct {
	client      *clientv3.Client
	maintenance pb.MaintenanceClient
	// minDefrag is the size of the smallest file that is defragmented without an alarm.
	minDefrag int64

	// full reports whether the last status had the alarm.
	full bool
	// lastRevision is etcd's revision at the last status: watches in this process have received it by now.
	lastRevision int64
	// compacted is the newest revision that the monitor compacted.
	compacted int64
	// compactedAt is the time of that compaction, until a defragmentation.
	compactedAt time.Time
	// busy is the time when etcd last had many writes; at the beginning, the time of the start.
	busy time.Time
	// retryAfter is the earliest time of the next action after an error.
	retryAfter time.Time
}

const (
	// spaceInterval is the time between two reads of etcd's status.
	spaceInterval = time.Second
	// spaceRetry is the pause after a compaction or defragmentation that failed, on a full disk for instance.
	spaceRetry = time.Minute
	// busyWrites is the number of writes in spaceInterval above which etcd is busy. A
	// defragmentation blocks reads and writes of etcd, so that it waits for quietTime without.
	busyWrites = 10
	quietTime  = time.Minute
	// sizeDelay is the time after a compaction for which the reported size in use counts. etcd
	// reports the space that a compaction has freed after its next write, and a full etcd may
	// have none: then the monitor defragments once, whatever the size in use is.
	sizeDelay = 5 * time.Second
	// minDefrag is 100 MiB: the space that a defragmentation of a smaller file frees does not matter.
	minDefrag = 100 << 20
)

// Percentages of the quota with a gap between them, so that the monitor does not alternate: it
// defragments when at most maxInUse is in use, and disarms when the file is smaller than maxFile.
const (
	maxInUse = 90
	maxFile  = 95
)

func newSpaceMonitor(client *clientv3.Client) *spaceMonitor {
	return &spaceMonitor{client: client, maintenance: pb.NewMaintenanceClient(client.ActiveConnection()),
		minDefrag: minDefrag, busy: time.Now()}
}

// MonitorSpace frees space in etcd's database, and clears the NOSPACE alarm, until ctx ends.
func MonitorSpace(ctx context.Context, client *clientv3.Client) {
	s := newSpaceMonitor(client)
	tick := time.NewTicker(spaceInterval)
	defer tick.Stop()
	for {
		if err := s.check(ctx); err != nil && ctx.Err() == nil {
			s.retryAfter = time.Now().Add(spaceRetry)
			utilruntime.HandleErrorWithContext(ctx, err, "Freeing space in etcd is retried", "after", spaceRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// check reads etcd's status, and starts at most one action.
func (s *spaceMonitor) check(ctx context.Context) error {
	status, err := s.maintenance.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return nil // readers and writers report that etcd is unavailable
	}
	defer func() { s.lastRevision = status.Header.Revision }()
	if status.Header.Revision-s.lastRevision > busyWrites {
		s.busy = time.Now()
	}
	s.report(ctx, HasNoSpaceAlarm(status))
	switch {
	case time.Now().Before(s.retryAfter):
		return nil
	case s.full:
		return s.clearAlarm(ctx, status)
	case status.DbSize >= s.minDefrag && status.DbSizeInUse < status.DbSize/2 && time.Since(s.busy) > quietTime:
		return s.defragment(ctx)
	}
	return nil
}

// report logs a change of the alarm.
func (s *spaceMonitor) report(ctx context.Context, full bool) {
	switch {
	case full && !s.full:
		utilruntime.HandleErrorWithContext(ctx, ErrNoSpace, "etcd refuses writes")
	case s.full && !full:
		klog.FromContext(ctx).Error(nil, "etcd has space again and accepts writes") // at the level of the error that it ends
	}
	s.full = full
}

// clearAlarm compacts etcd's history: losing history is better than refusing writes. If that frees
// enough space, it then defragments the database and disarms the alarm. Each call does one step.
func (s *spaceMonitor) clearAlarm(ctx context.Context, status *pb.StatusResponse) error {
	if s.lastRevision > s.compacted {
		if _, err := s.client.Compact(ctx, s.lastRevision, clientv3.WithCompactPhysical()); err != nil &&
			!errors.Is(err, rpctypes.ErrCompacted) {
			return fmt.Errorf("compact etcd: %w", err)
		}
		s.compacted, s.compactedAt = s.lastRevision, time.Now()
		return nil
	}
	quota := status.DbSizeQuota
	if status.DbSize > quota/100*maxFile {
		outdated := !s.compactedAt.IsZero() && time.Since(s.compactedAt) > sizeDelay
		if status.DbSizeInUse > quota/100*maxInUse && !outdated {
			return nil
		}
		err := s.defragment(ctx)
		if err == nil {
			s.compactedAt = time.Time{}
		}
		return err
	}
	member := &clientv3.AlarmMember{MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE}
	if _, err := s.client.AlarmDisarm(ctx, member); err != nil {
		return fmt.Errorf("disarm etcd's alarm: %w", err)
	}
	return nil
}

func (s *spaceMonitor) defragment(ctx context.Context) error {
	if _, err := s.maintenance.Defragment(ctx, &pb.DefragmentRequest{}); err != nil {
		return fmt.Errorf("defragment etcd: %w", err)
	}
	return nil
}

// ErrNoSpace describes etcd while the NOSPACE alarm is raised.
var ErrNoSpace = errors.New(
	"etcd has reached its space quota (alarm NOSPACE) and refuses creates and updates; reads, watches and deletes work: " +
		"delete objects, or give etcd a larger quota (--quota-backend-bytes)")

// HasNoSpaceAlarm reports whether the NOSPACE alarm of any member is raised.
func HasNoSpaceAlarm(status *pb.StatusResponse) bool {
	for _, alarm := range status.Errors {
		if strings.Contains(alarm, pb.AlarmType_NOSPACE.String()) {
			return true
		}
	}
	return false
}
