package etcd

import (
	"context"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/keepwatch/keepwatch"
)

// Past is the newest write that the sources of one etcd have seen. A source looks for it
// whenever it opens a watch: if etcd has another one at that revision, its history was
// replaced, by a restore from a backup, even where the revisions and the cluster's id go on
// as if nothing had happened. Sources that share a Past notice it when the write is of
// another one's resource. The zero value is ready; it is safe for concurrent use.
type LastWrite struct {
	state atomic.Pointer[lastWriteState]
}

// past never changes.
type lastWriteState struct {
	newest write // its revision is zero before the first
	// replaced counts how often the history was replaced.
	replaced uint64
}

// write is one that created or changed a key.
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

// saw takes notice of a key's state. A server that does not count a key's writes, such as
// kine, does not keep their history as etcd does: what it has at a revision proves nothing.
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

// renounce forgets what was seen of a history that was replaced, and makes every source that
// has listed in it list again. The first source that notices counts.
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

// listedIn is which history the source has listed, by the number of those before it.
func (s *Source) listedHistory() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replaced
}

// beginList remembers which history a list is read from.
func (s *Source) recordListStart() {
	replaced := s.lastWrite.load().replaced
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replaced = replaced
}

// rewound makes the other sources list, too, if a failure is that the history was replaced.
func (s *Source) reportRewind(failure *keepwatch.Failure) *keepwatch.Failure {
	if failure != nil && failure.Kind == keepwatch.Rewound {
		s.lastWrite.markReplaced(s.listedHistory())
	}
	return failure
}

// confirmPast checks that the newest write that was seen is part of etcd's history, and that
// the history was not replaced since the source has listed. A write whose revision is
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

// is reports whether etcd shows the write.
func (w write) matches(kvs []*mvccpb.KeyValue) bool {
	return len(kvs) == 1 && kvs[0].ModRevision == w.revision && sumOf(kvs[0].Value) == w.sum
}
