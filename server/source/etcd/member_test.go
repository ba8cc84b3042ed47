package etcd_test

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// member is an etcd of one member. It listens on a Unix socket, which no other process can
// use while it is stopped.
type member struct {
	dir    string // with the socket and the data
	config func(*embed.Config)
	etcd   *embed.Etcd
	rpc    *grpc.Server
}

// shortDir returns a temporary folder whose path is short enough for a socket.
func shortDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func newMember(dir string) *member { return &member{dir: dir, config: func(*embed.Config) {}} }

// startMember runs an etcd until the test ends.
func startMember(tb testing.TB, config func(*embed.Config)) *member {
	tb.Helper()
	dir := shortDir(tb)
	m := newMember(dir)
	if config != nil {
		m.config = config
	}
	if err := m.start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(m.stop)
	return m
}

func (m *member) endpoints() []string { return []string{m.etcd.Config().ListenClientUrls[0].String()} }

func (m *member) start() error {
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(m.dir, "data")
	cfg.ListenPeerUrls = nil
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: socketIn(m.dir)}}
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.UnsafeNoFsync = true
	cfg.BcryptCost = 4 // the least
	cfg.EnableGRPCGateway = false
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.ServiceRegister = func(s *grpc.Server) { m.rpc = s }
	m.config(cfg)
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	if cfg.ListenPeerUrls == nil {
		cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	}
	var err error
	if m.etcd, err = embed.StartEtcd(cfg); err != nil {
		return err
	}
	return m.ready()
}

func (m *member) ready() error {
	select {
	case <-m.etcd.Server.ReadyNotify():
		return nil
	case <-time.After(await.Deadline):
		m.stop()
		return errors.New("etcd is not ready")
	}
}

// stop stops the etcd without waiting for its clients.
func (m *member) stop() {
	if m.etcd == nil {
		return
	}
	if m.rpc != nil {
		m.rpc.Stop() // or Close waits for the watches
	}
	m.etcd.Close()
	m.etcd = nil
}

// copyData returns a backup of the stopped etcd's data.
func (m *member) copyData(tb testing.TB) string {
	tb.Helper()
	backup := filepath.Join(tb.TempDir(), "data")
	if err := os.CopyFS(backup, os.DirFS(filepath.Join(m.dir, "data"))); err != nil {
		tb.Fatal(err)
	}
	return backup
}

// restore replaces the stopped etcd's data.
func (m *member) restore(tb testing.TB, backup string) {
	tb.Helper()
	data := filepath.Join(m.dir, "data")
	if err := os.RemoveAll(data); err != nil {
		tb.Fatal(err)
	}
	if err := os.CopyFS(data, os.DirFS(backup)); err != nil {
		tb.Fatal(err)
	}
}
