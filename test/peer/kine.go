package peer

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// KineBackend is the database of a kine. The values are closed.
type KineBackend string

const (
	KineSQLite KineBackend = "sqlite"
	KineNATS   KineBackend = "nats" // embedded
)

// StartKine starts an empty kine, which speaks etcd's protocol, for the duration of the test.
func StartKine(tb testing.TB, backend KineBackend) *EtcdServer {
	tb.Helper()
	k, err := startKine(tb.Context(), tb.TempDir(), backend)
	own(tb, k.Service, err)
	return k
}

func startKine(ctx context.Context, dir string, backend KineBackend) (*EtcdServer, error) {
	path, err := Kine.Path(ctx)
	if err != nil {
		return &EtcdServer{}, err
	}
	storage := "sqlite://" + filepath.Join(dir, "state.db") +
		"?_journal=WAL&cache=shared&_busy_timeout=30000&_txlock=immediate"
	if backend == KineNATS {
		storage = "nats://?dontListen=true&dataDir=" + filepath.Join(dir, "nats")
	}
	k := &EtcdServer{}
	k.Service = &Service{
		name: "kine", path: path, log: filepath.Join(dir, "kine.log"),
		probe: k.answers,
	}
	return k, k.launch(ctx, func(port int) {
		address := fmt.Sprintf("127.0.0.1:%d", port)
		k.Endpoint = Endpoint("http://" + address)
		k.args = []string{"--listen-address", address, "--endpoint", storage, "--metrics-bind-address", "0"}
	})
}

// answers is ready as soon as a key can be read.
func (e *EtcdServer) answers(ctx context.Context) error {
	client, err := e.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = client.Get(ctx, "any")
	return err
}
