package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Snapshot saves a snapshot of etcd into a file, while etcd runs. It has nothing that is behind the revision which is
// returned.
func (e Endpoint) Snapshot(ctx context.Context, file string) (revision int64, err error) {
	client, err := e.Client()
	if err != nil {
		return 0, err
	}
	defer client.Close()
	snapshot, err := client.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer snapshot.Close()
	begun := make([]byte, 1) // what is written from now on is not in it
	if _, err := io.ReadFull(snapshot, begun); err != nil {
		return 0, err
	}
	now, err := client.Get(ctx, "any", clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	f, err := os.Create(file)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(f, io.MultiReader(bytes.NewReader(begun), snapshot))
	return now.Header.Revision, errors.Join(err, f.Close())
}

// RestoreSnapshot kills etcd, restores its data from a snapshot with etcdutl, and starts it again. The flags
// are those of etcdutl snapshot restore, such as --bump-revision.
func (e *EtcdServer) RestoreSnapshot(ctx context.Context, file string, flags ...string) error {
	path, err := Etcdutl.Path(ctx)
	if err != nil {
		return err
	}
	e.Kill()
	data := filepath.Join(filepath.Dir(e.log), "etcd")
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	restore := exec.CommandContext(ctx, path, append([]string{"restore", file,
		"--data-dir", data,
		"--name", e.member(),
		"--initial-cluster", e.member() + "=http://127.0.0.1:0",
		"--initial-advertise-peer-urls", "http://127.0.0.1:0",
	}, flags...)...)
	if text, err := restore.CombinedOutput(); err != nil {
		return fmt.Errorf("etcdutl: %w\n%s", err, text)
	}
	return e.Restart(ctx)
}
