package etcd

import (
	"context"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/keepwatch/keepwatch"
)

// LastWrite records the newest write that the sources of one etcd have seen. A source reads
// that write again whenever it opens a watch: if etcd has another one at that revision, its
// history was replaced by a restore from a backup, even if the revisions and the cluster's
// id continue without a gap. Sources that share a LastWrite also detect it by a write of
// another source's resource. The zero value is ready; it is safe for concurrent use.
type LastWrite struct {
	state atomic.Pointer[lastWriteState]
}

// lastWriteState is immutable.
type lastWriteState struct {
	newest write // its revision is zero until one was seen
	// replaced counts the replacements of the history.
	replaced uint64
}

// write is a put: it created or changed a key.
type write struct {
	key      string
	revision int64
	sum      uint64 // of the value
}

func (p *LastWrite) load() lastWriteState {
	if known := p.state.Load(); known != nil {
		return *known
	}
	return lastWriteState{}
}

// record stores a key's state if it is the newest one. A server that does not count a
// key's writes, such as kine, does not store history as etcd does: its state at a revision
// proves nothing.
func (p *LastWrite) record(kv *mvccpb.KeyValue, sum uint64) {
	for kv.Version > 0 {
		known := p.state.Load()
		next := lastWriteState{newest: write{string(kv.Key), kv.ModRevision, sum}}
		if known != nil {
			if known.newest.revision >= kv.ModRevision {
				return
			}
			next.replaced = known.replaced
		}
		if p.state.CompareAndSwap(known, &next) {
			return
		}
	}
}

// markReplaced drops the newest write of a history that was replaced, and makes every
// source that has listed in that history list again. Only the first source that detects the
// replacement counts it.
func (p *LastWrite) markReplaced(replaced uint64) {
	for {
		known := p.state.Load()
		if known != nil && known.replaced != replaced || known == nil && replaced != 0 {
			return
		}
		if p.state.CompareAndSwap(known, &lastWriteState{replaced: replaced + 1}) {
			return
		}
	}
}

// listedHistory returns the number of replacements before the source's last list.
func (s *Source) listedHistory() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replaced
}

// recordListStart records which history a list is read from.
func (s *Source) recordListStart() {
	replaced := s.lastWrite.load().replaced
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replaced = replaced
}

// reportRewind makes the other sources list too, if failure is Rewound. It returns failure.
func (s *Source) reportRewind(failure *keepwatch.Failure) *keepwatch.Failure {
	if failure != nil && failure.Kind == keepwatch.Rewound {
		s.lastWrite.markReplaced(s.listedHistory())
	}
	return failure
}

// checkLastWrite returns Rewound if the newest write seen is not part of etcd's history, or
// if the history was replaced since the source's last list. A write whose revision is
// compacted proves nothing.
func (s *Source) checkLastWrite(ctx context.Context) *keepwatch.Failure {
	known := s.lastWrite.load()
	if known.replaced != s.listedHistory() {
		return keepwatch.Failed(keepwatch.Rewound, "watch %s: etcd's history was replaced", s.prefix)
	}
	w := known.newest
	if w.revision == 0 {
		return nil
	}
	answer, err := s.read(ctx, &pb.RangeRequest{Key: []byte(w.key), Revision: w.revision})
	if err != nil && kindOf(err) == keepwatch.Expired || err == nil && w.matches(answer.Kvs) {
		return nil
	}
	if err != nil && kindOf(err) != keepwatch.Rewound {
		return s.failure(ctx, "watch", err)
	}
	return keepwatch.Failed(keepwatch.Rewound,
		"watch %s: etcd's history was replaced: the write of %s at %d is not in it", s.prefix, w.key, w.revision)
}

// matches reports whether etcd's answer is the write.
func (w write) matches(kvs []*mvccpb.KeyValue) bool {
	return len(kvs) == 1 && kvs[0].ModRevision == w.revision && sumOf(kvs[0].Value) == w.sum
}
