package audit_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/internal/testonly/judgetest"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// api is a server, and twin another one on its etcd, with Kubernetes' own watch cache. other is a server
// of another cluster.
var api, twin, other *rest.Config

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	klog.SetLogger(logr.Discard())
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var ended []chan error
	start := func(o controlplane.Options) *controlplane.Server {
		server, err := controlplane.New(o)
		if err != nil {
			panic(err)
		}
		end := make(chan error, 1)
		ended = append(ended, end)
		go func() { end <- server.Run(ctx) }()
		select {
		case <-server.Ready():
		case err := <-end:
			panic(err)
		}
		return server
	}
	first := start(controlplane.Options{TemporaryEtcd: true})
	api = first.RESTConfig()
	twin = start(controlplane.Options{Etcd: first.EtcdCluster(), Storage: controlplane.UpstreamStorage}).RESTConfig()
	other = start(controlplane.Options{}).RESTConfig()
	code := m.Run()
	left := judgetest.Goroutines("keepwatch/audit.")
	stop()
	for _, end := range ended {
		if err := <-end; err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if left != "" {
		fmt.Fprintln(os.Stderr, left)
		return 1
	}
	return code
}
