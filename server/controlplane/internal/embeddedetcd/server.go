package embeddedetcd

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

	"github.com/keepwatch/keepwatch/server/controlplane/internal/datadir"
)

// Server is a running etcd with one member.
type Server struct {
	// Endpoint is the URL of the Unix socket on which etcd listens.
	Endpoint string

	etcd *embed.Etcd
	log  *fatalLog
	rpc  atomic.Pointer[grpc.Server]
	// socketDir is the temporary folder of the socket; empty if the socket is in the data folder.
	socketDir string
}

const (
	// folder is etcd's own folder in the data folder, runFolder that of the socket.
	folder, runFolder = "etcd", "run"
	// tick, in milliseconds, and electionTicks let the only member elect itself in a tenth of the
	// second that members of a real cluster wait for each other.
	tick          = 20
	electionTicks = 5
	// startTimeout bounds a start. A start takes a second, or a minute on a disk that stalls. A start
	// that fails returns its cause, so that only a hang exceeds it.
	startTimeout = 5 * time.Minute
	// closeTimeout bounds the wait for an etcd that does not close.
	closeTimeout = time.Second
	// abandonTimeout bounds the wait for a start that was canceled.
	abandonTimeout = time.Second
	// maxSocketPath is the longest path that fits into a sockaddr_un on all systems (macOS: 104 bytes with NUL).
	maxSocketPath = 103
)

// Start runs etcd on the data of d, which Check has accepted. The database is at most quota bytes
// large. Etcd does not flush the data of a temporary folder to the disk.
func Start(ctx context.Context, d *datadir.Dir, quota int64) (_ *Server, err error) {
	s := &Server{log: newFatalLog()}
	defer func() {
		if err != nil {
			s.removeSocket()
		}
	}()
	socket, err := s.socketPath(d)
	if err != nil {
		return nil, err
	}
	s.Endpoint = "unix://" + socket
	if err := s.start(ctx, s.config(d, socket, quota)); err != nil {
		if errors.Is(err, syscall.ENOSPC) || ctx.Err() != nil {
			return nil, fmt.Errorf("etcd doesn't start on %s: %w", d.Path, err)
		}
		return nil, fmt.Errorf(
			"etcd can't open the data in %s: %w; the data was not overwritten: restore a copy, or give another folder", d.Path,
			err)
	}
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	select {
	case <-s.etcd.Server.ReadyNotify():
		return s, nil
	case <-s.log.failed.Done():
		err = context.Cause(s.log.failed)
	case <-ctx.Done():
		err = ctx.Err()
	case <-deadline.C:
		err = fmt.Errorf("it isn't ready after %v", startTimeout)
	}
	s.Stop()
	return nil, fmt.Errorf("etcd doesn't start on %s: %w", d.Path, err)
}

// Failed returns a context that is done when etcd has ended by a fatal error, which is its cause.
func (s *Server) Failed() context.Context { return s.log.failed }

// config returns the configuration of a member without peers.
func (s *Server) config(d *datadir.Dir, socket string, quota int64) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = "keepwatch"
	cfg.Dir = d.File(folder)
	cfg.ListenPeerUrls = nil
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: socket}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs, cfg.ElectionMs = tick, electionTicks*tick
	cfg.UnsafeNoFsync = d.Temporary
	cfg.QuotaBackendBytes = quota
	cfg.EnableGRPCGateway = false
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(s.log.zap())
	cfg.ServiceRegister = s.rpc.Store
	return cfg
}

// startResult is what embed.StartEtcd returned.
type startResult struct {
	etcd *embed.Etcd
	err  error
}

// start calls embed.StartEtcd in a goroutine of its own. On data that it cannot read or write, etcd
// exits the process or panics; the hooks of the log end the calling goroutine instead. That is this
// goroutine, or one of etcd's, which can leave a lock behind that StartEtcd waits for.
func (s *Server) start(ctx context.Context, cfg *embed.Config) error {
	started := make(chan startResult, 1)
	go func() {
		r := startResult{err: errors.New("it ended without a reason")}
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
		s.etcd = r.etcd
		if r.err != nil && s.log.failed.Err() != nil {
			return context.Cause(s.log.failed)
		}
		return r.err
	case <-s.log.failed.Done():
		err = context.Cause(s.log.failed)
	case <-ctx.Done():
		err = ctx.Err()
	}
	select {
	case r := <-started:
		if s.etcd = r.etcd; s.etcd != nil {
			s.Stop()
		}
	case <-time.After(abandonTimeout):
		go func() { // StartEtcd can't be interrupted
			if r := <-started; r.etcd != nil {
				r.etcd.Close()
			}
		}()
	}
	return err
}

// Stop stops etcd at once. The caller has closed its clients.
func (s *Server) Stop() {
	if rpc := s.rpc.Load(); rpc != nil {
		rpc.Stop() // otherwise Close waits for watches of other processes over the socket
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.etcd.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeTimeout): // an etcd that has failed may never close
	}
	s.removeSocket()
}

// socketPath returns the path of the socket. Its folder is accessible to its owner only, whatever
// the umask and the mode of the data folder are. The folder is in the data folder, or a temporary
// one if that path is too long for a socket.
func (s *Server) socketPath(d *datadir.Dir) (string, error) {
	if path := filepath.Join(d.File(runFolder), "etcd.sock"); len(path) <= maxSocketPath {
		return path, makePrivate(d.File(runFolder))
	}
	dir, err := os.MkdirTemp("", "keepwatch-")
	if err != nil {
		return "", fmt.Errorf("cannot create a folder for etcd's socket: %w", err)
	}
	s.socketDir = dir
	return filepath.Join(dir, "etcd.sock"), nil
}

// makePrivate creates a folder that only its owner can enter, or changes the mode of an existing one.
func makePrivate(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		err = os.Chmod(dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("cannot make the folder %s, for etcd's socket, private: %w", dir, datadir.Cause(err))
	}
	return nil
}

func (s *Server) removeSocket() {
	if s.socketDir != "" {
		os.RemoveAll(s.socketDir)
	}
}
