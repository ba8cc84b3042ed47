package assets

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"go.etcd.io/etcd/server/v3/etcdmain"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/serving"
)

// exactServer is Kubernetes' own API server with the reads of Keepwatch: directory kubernetes.
const exactServer = "keepwatch-apiserver"

// findExactServer returns the path of exactServer: in the folder of this program, or else in PATH.
func findExactServer(beside string) (string, error) {
	path := filepath.Join(beside, exactServer)
	if _, err := exec.LookPath(path); err != nil {
		if path, err = exec.LookPath(exactServer); err != nil {
			return "", fmt.Errorf(
				"there is no %s in %s or in PATH: make it by `make kubernetes` in a clone of Keepwatch, or leave out --exact",
				exactServer, beside)
		}
	}
	return filepath.Abs(path)
}

// BesideExactServer reports whether kube-apiserver in the folder by whose path this program was called is a link to
// exactServer.
func BesideExactServer() bool {
	called, err := exec.LookPath(os.Args[0])
	if err != nil {
		return false
	}
	server, err := os.Readlink(filepath.Join(filepath.Dir(called), APIServer))
	return err == nil && filepath.Base(server) == exactServer
}

// RunExactEtcd is etcd, with the process's arguments. It also ends when the process that started it has ended.
func RunExactEtcd() {
	parent, cancel := serving.WithParent(context.Background())
	defer cancel()
	context.AfterFunc(parent, func() {
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Signal(syscall.SIGTERM)
		}
	})
	etcdmain.Main(os.Args)
}
