package controlplane

import (
	"context"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apiserver/pkg/storage/etcd3"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/datadir"
	"github.com/keepwatch/keepwatch/server/source/memory"
	"github.com/keepwatch/keepwatch/server/storage"
)

// Memory has the objects and the credentials of a server without etcd. It outlives the server, so that another
// one can continue with it; see [Options].Memory. It is safe for concurrent use.
type Memory struct {
	db  *memory.DB
	dir *datadir.Dir
}

// NewMemory returns an empty Memory. Close frees its timer.
func NewMemory() *Memory { return &Memory{memory.New(), datadir.InMemory()} }

// Close ends the expiry of events. The objects can still be read, and forked.
func (m *Memory) Close() { m.db.Close() }

// Revision returns the newest resourceVersion.
func (m *Memory) Revision() keepwatch.Revision { return m.db.Revision() }

// Fork returns a Memory with the same objects and credentials, in constant time. It has no history before: a
// watch from an earlier revision receives 410. Neither sees what is written to the other later.
func (m *Memory) Fork() *Memory { return &Memory{m.db.Fork(), m.dir.Clone()} }

// At returns a Memory with the objects at a revision, as if it were restored from a backup. It fails for a
// revision that is older than the history (of 5 minutes or 64 MiB), or still to come.
func (m *Memory) At(revision keepwatch.Revision) (*Memory, error) {
	then, err := m.db.At(revision)
	if err != nil {
		return nil, err
	}
	return &Memory{then, m.dir.Clone()}, nil
}

// memoryDatabase is a database in memory. It needs no claim: nothing else writes to it.
type memoryDatabase struct{ *memory.DB }

func (d memoryDatabase) writer(prefix string) (*kubernetes.Client, etcd3.Compactor) {
	return d.Client(prefix), d.DB
}

func (d memoryDatabase) reader(config *storage.Config) { config.Memory = d.DB }

func (d memoryDatabase) compact(context.Context) error {
	if newest := d.Revision(); newest > d.Compacted() {
		return d.Compact(newest)
	}
	return nil
}

func (memoryDatabase) ping(context.Context) error     { return nil }
func (memoryDatabase) hasSpace(context.Context) error { return nil }
func (memoryDatabase) readOnly() bool                 { return false }

func (memoryDatabase) close() {} // the owner of the Memory closes it
