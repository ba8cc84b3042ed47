package conform_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/internal/testonly/judgetest"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// api is the server of most tests. compacted is one with Kubernetes' own watch cache, on an etcd without the
// history of its first revisions.
var api, compacted *rest.Config

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	klog.SetLogger(logr.Discard())
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	server, ended, err := start(ctx, controlplane.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	upstream, upstreamEnded, err := start(ctx, controlplane.Options{Storage: controlplane.UpstreamStorage})
	if err == nil {
		err = compact(ctx, upstream.EtcdCluster())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	api, compacted = server.RESTConfig(), upstream.RESTConfig()
	code := m.Run()
	stop()
	if err := errors.Join(<-ended, <-upstreamEnded); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if left := judgetest.Goroutines("keepwatch/conform."); left != "" && code == 0 {
		fmt.Fprintln(os.Stderr, left)
		return 1
	}
	return code
}

// start runs a server until ctx is done, and returns it when it is ready.
func start(ctx context.Context, o controlplane.Options) (*controlplane.Server, <-chan error, error) {
	server, err := controlplane.New(o)
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	select {
	case <-server.Ready():
		return server, ended, nil
	case err := <-ended:
		return nil, nil, err
	}
}

// compact compacts the history of the server's etcd, as an API server does every five minutes.
func compact(ctx context.Context, etcd controlplane.EtcdCluster) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: etcd.Servers, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	newest, err := client.Get(ctx, "/")
	if err == nil {
		_, err = client.Compact(ctx, newest.Header.Revision)
	}
	return errors.Join(err, client.Close())
}
