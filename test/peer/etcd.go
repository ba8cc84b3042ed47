package peer

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Endpoint is the client URL of an etcd without TLS, as a value for --etcd-servers and
// etcdctl.
type Endpoint string

// EtcdServer is a running etcd of one member.
type EtcdServer struct {
	*Service
	Endpoint
}

// StartEtcd starts an empty etcd for the duration of the test. The flags follow the
// default ones and override them.
func StartEtcd(tb testing.TB, flags ...string) *EtcdServer {
	tb.Helper()
	e, err := startEtcd(tb.Context(), tb.TempDir(), flags)
	own(tb, e.Service, err)
	return e
}

func startEtcd(ctx context.Context, dir string, flags []string) (*EtcdServer, error) {
	path, err := Etcd.Path(ctx)
	if err != nil {
		return &EtcdServer{}, err
	}
	e := &EtcdServer{}
	e.Service = &Service{
		name: "etcd", path: path, log: filepath.Join(dir, "etcd.log"),
		probe: e.probe,
	}
	return e, e.launch(ctx, func(port int) {
		e.Endpoint = Endpoint(fmt.Sprintf("http://127.0.0.1:%d", port))
		e.args = append([]string{
			"--name", e.member(),
			"--data-dir", filepath.Join(dir, "etcd"),
			"--listen-client-urls", string(e.Endpoint),
			"--advertise-client-urls", string(e.Endpoint),
			"--listen-peer-urls", "http://127.0.0.1:0",
			"--initial-advertise-peer-urls", "http://127.0.0.1:0",
			"--initial-cluster", e.member() + "=http://127.0.0.1:0",
			// A test survives etcd's death, but no power failure.
			"--unsafe-no-fsync",
			"--quota-backend-bytes", fmt.Sprint(8 << 30),
			"--log-level", "warn",
		}, flags...)
	})
}

// member names etcd's member after its data, so that probe recognizes another etcd that
// uses its port.
func (e *EtcdServer) member() string { return filepath.Base(filepath.Dir(e.log)) }

func (e *EtcdServer) probe(ctx context.Context) error {
	client, err := e.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	list, err := client.MemberList(ctx)
	if err != nil {
		return err
	}
	if len(list.Members) != 1 || list.Members[0].Name != e.member() {
		return fmt.Errorf("another etcd answers at %s", e.Endpoint)
	}
	return nil
}

// Client returns a new client, which the caller closes.
func (e Endpoint) Client() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{string(e)}, Logger: zap.NewNop()})
}

// Compact removes the history before the current revision, which it returns, and waits
// until that is done on disk. A watch at an earlier revision cannot resume afterwards.
func (e Endpoint) Compact(ctx context.Context) (revision int64, err error) {
	client, err := e.Client()
	if err != nil {
		return 0, err
	}
	defer client.Close()
	now, err := client.Get(ctx, "any", clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	revision = now.Header.Revision
	_, err = client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	return revision, err
}
