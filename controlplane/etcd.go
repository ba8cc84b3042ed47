package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

// member is the embedded etcd: one member, reachable over a Unix socket that only its owner can
// open, and over nothing else.
type member struct {
	etcd     *embed.Etcd
	log      *etcdLog
	rpc      atomic.Pointer[grpc.Server]
	endpoint string
	// socketDir is removed at the end; empty when the socket is in the data folder.
	socketDir string
}

const (
	// tick, in milliseconds, and electionTicks let the only member elect itself in a tenth of the
	// second that members of a real cluster wait for each other.
	tick          = 20
	electionTicks = 5
	// closeTime bounds the end of an etcd that doesn't end by itself.
	closeTime = time.Second
	// abandonTime bounds the wait for a start of etcd that nobody wants any more.
	abandonTime = time.Second
	// longestSocketPath is what fits into a sockaddr_un on all systems (macOS: 104 bytes with NUL).
	longestSocketPath = 103
)

// startMember runs etcd on dir/etcd, in which checkData has found no damage. Data that is temporary
// isn't flushed to the disk.
func startMember(ctx context.Context, d *dataDir, quota int64) (_ *member, err error) {
	m := &member{log: newEtcdLog()}
	defer func() {
		if err != nil {
			m.removeSocket()
		}
	}()
	socket, err := m.socketPath(d)
	if err != nil {
		return nil, err
	}
	m.endpoint = "unix://" + socket
	if err := m.start(ctx, m.config(d, socket, quota)); err != nil {
		if errors.Is(err, syscall.ENOSPC) || ctx.Err() != nil {
			return nil, fmt.Errorf("etcd doesn't start on %s: %w", d.path, err)
		}
		return nil, fmt.Errorf("etcd can't open the data in %s: %w; the data was not overwritten: restore a copy, or give another folder", d.path, err)
	}
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	select {
	case <-m.etcd.Server.ReadyNotify():
		return m, nil
	case <-m.log.failed.Done():
		err = context.Cause(m.log.failed)
	case <-ctx.Done():
		err = ctx.Err()
	case <-deadline.C:
		err = fmt.Errorf("it isn't ready after %v", startTimeout)
	}
	m.stop()
	return nil, fmt.Errorf("etcd doesn't start on %s: %w", d.path, err)
}

// config is a member for this process alone. It has no peers and listens for none.
func (m *member) config(d *dataDir, socket string, quota int64) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = "keepwatch"
	cfg.Dir = d.file("etcd")
	cfg.ListenPeerUrls = nil
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: socket}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs, cfg.ElectionMs = tick, electionTicks*tick
	cfg.UnsafeNoFsync = d.temporary
	cfg.QuotaBackendBytes = quota
	cfg.EnableGRPCGateway = false
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(m.log.zap())
	cfg.ServiceRegister = m.rpc.Store
	return cfg
}

// result is what became of a start of etcd.
type result struct {
	etcd *embed.Etcd
	err  error
}

// start survives what etcd does about data it can't read or write: it ends the process or panics. The
// log's hooks end the calling goroutine instead. That is the one made for this, or another, which can leave
// a lock behind that the start waits for.
func (m *member) start(ctx context.Context, cfg *embed.Config) error {
	started := make(chan result, 1)
	go func() {
		r := result{err: errors.New("it ended without a reason")}
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("%v", p)
			}
			started <- r
		}()
		r.etcd, r.err = embed.StartEtcd(cfg)
	}()
	var err error
	select {
	case r := <-started:
		m.etcd = r.etcd
		if r.err != nil && m.log.failed.Err() != nil {
			return context.Cause(m.log.failed)
		}
		return r.err
	case <-m.log.failed.Done():
		err = context.Cause(m.log.failed)
	case <-ctx.Done():
		err = ctx.Err()
	}
	select {
	case r := <-started:
		if m.etcd = r.etcd; m.etcd != nil {
			m.stop()
		}
	case <-time.After(abandonTime):
		go func() { // etcd's start can't be interrupted
			if r := <-started; r.etcd != nil {
				r.etcd.Close()
			}
		}()
	}
	return err
}

// stop ends etcd at once: its clients are in this process and have been closed.
func (m *member) stop() {
	if rpc := m.rpc.Load(); rpc != nil {
		rpc.Stop() // or else Close waits for whoever else watches over the socket
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		m.etcd.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeTime): // a broken etcd may never close
	}
	m.removeSocket()
}

// socketPath is in a folder of its own that nobody else can enter, whatever the umask and the mode of the
// data folder: below that, or a temporary one if that path is too long for a socket.
func (m *member) socketPath(d *dataDir) (string, error) {
	if path := filepath.Join(d.file("run"), "etcd.sock"); len(path) <= longestSocketPath {
		return path, makePrivate(d.file("run"))
	}
	dir, err := os.MkdirTemp("", "keepwatch-")
	if err != nil {
		return "", fmt.Errorf("cannot create a folder for etcd's socket: %w", err)
	}
	m.socketDir = dir
	return filepath.Join(dir, "etcd.sock"), nil
}

// makePrivate makes a folder that only its owner can enter, of one that may exist.
func makePrivate(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		err = os.Chmod(dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("cannot make the folder %s, for etcd's socket, private: %w", dir, reason(err))
	}
	return nil
}

func (m *member) removeSocket() {
	if m.socketDir != "" {
		os.RemoveAll(m.socketDir)
	}
}
