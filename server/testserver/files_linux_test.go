package testserver_test

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/testserver"
)

// openFiles returns the files, sockets and pipes that this process has open.
func openFiles(t *testing.T) map[string]bool {
	t.Helper()
	descriptors := must(os.ReadDir("/proc/self/fd"))(t)
	open := map[string]bool{}
	for _, d := range descriptors {
		if target, err := os.Readlink(filepath.Join("/proc/self/fd", d.Name())); err == nil { // the one of ReadDir is gone
			open[target] = true
		}
	}
	return open
}

// A server that has stopped has no file, socket or pipe open, also if it stopped with an open watch.
func TestFilesAreClosed(t *testing.T) { // no t.Parallel: it counts the files of the process
	use := func(t *testing.T, options ...testserver.Option) *testserver.Server {
		srv := testserver.New(t, options...)
		c := connect(t, srv.Config())
		watching := must(c.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{}))(t)
		createMap(t, c, "a")
		go func() {
			for range watching.ResultChan() { // until the server stops
			}
		}()
		return srv
	}
	t.Run("first", func(t *testing.T) { use(t) }) // what a process opens once
	before := openFiles(t)
	for name, options := range map[string][]testserver.Option{
		"memory": nil, "etcd": {testserver.Etcd()}, "simulation": {testserver.Simulate()}, "rbac": {testserver.RBAC()},
	} {
		t.Run(name, func(t *testing.T) { use(t, options...) })
	}
	t.Run("restart and fork", func(t *testing.T) {
		srv := use(t)
		srv.Restart()
		fork := srv.Fork(t)
		createMap(t, connect(t, srv.Config()), "b")
		createMap(t, connect(t, fork.Config()), "c")
	})
	await.True(t, "all files are closed", func() bool {
		for file := range openFiles(t) {
			if !before[file] {
				return false
			}
		}
		return true
	})
}
