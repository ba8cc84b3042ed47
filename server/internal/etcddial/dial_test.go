package etcddial

import (
	"context"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// The client reaches a real etcd, through the options that were added.
func TestDial(t *testing.T) {
	var calls atomic.Int64
	count := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any,
		c *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		calls.Add(1)
		return invoke(ctx, method, request, reply, c, o...)
	})
	client, err := Dial(Cluster{Servers: []string{startEtcd(t)}}, count)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Put(t.Context(), "a", "1"); err != nil {
		t.Fatal(err)
	}
	if answer, err := client.Get(t.Context(), "a"); err != nil || answer.Count != 1 {
		t.Errorf("read %v, %v", answer, err)
	}
	if calls.Load() != 2 {
		t.Errorf("the interceptor has seen %d calls, not 2", calls.Load())
	}
}

// Each of the files makes Dial use TLS, and is read at once.
func TestDialMissingFiles(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	for name, cluster := range map[string]Cluster{
		"authority":   {CAFile: missing},
		"certificate": {CertFile: missing, KeyFile: missing},
		"key":         {KeyFile: missing},
	} {
		t.Run(name, func(t *testing.T) {
			cluster.Servers = []string{"https://127.0.0.1:1"}
			if _, err := Dial(cluster); err == nil || !strings.Contains(err.Error(), "cannot use etcd's certificate files") {
				t.Errorf("Dial returns %v", err)
			}
		})
	}
}

func TestDialNoServers(t *testing.T) {
	if _, err := Dial(Cluster{}); err == nil || !strings.HasPrefix(err.Error(), "cannot use etcd at []: ") {
		t.Errorf("Dial returns %v", err)
	}
}

func startEtcd(t *testing.T) string {
	config := embed.NewConfig()
	config.Dir = t.TempDir()
	config.ListenPeerUrls = nil
	config.ListenClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.AdvertiseClientUrls = config.ListenClientUrls
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	config.UnsafeNoFsync = true
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	<-etcd.Server.ReadyNotify()
	return "http://" + etcd.Clients[0].Addr().String()
}
